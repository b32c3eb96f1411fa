//! What was committed and has no position yet: rows of lines, since a row costs the same for one line and for twenty.

/// Between the lines of a row. JSON never has it as it is.
const BETWEEN: char = '\u{1e}';

/// A row takes no more lines when it has so many bytes: more than fit into a page would be stored apart from it, in pieces.
const ROW: usize = 7_000;

/// Puts lines together to rows, in their order.
pub(super) fn rows(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for line in lines {
        match rows.last_mut() {
            Some(row) if row.len() + line.len() < ROW => {
                row.push(BETWEEN);
                row.push_str(&line);
            }
            _ => rows.push(line),
        }
    }
    rows
}

/// The lines of a row.
pub(super) fn lines(row: &str) -> impl Iterator<Item = &str> {
    row.split(BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_all_lines_in_their_order_and_no_more_than_fit_into_a_page() {
        let line = |n: usize| serde_json::json!({ "n": n, "text": "\u{1e}\n".repeat(n % 700) }).to_string();
        let given: Vec<String> = (0..2_000).map(line).collect();
        let rows = rows(given.clone());
        assert!(rows.len() > 1 && rows.len() < given.len());
        assert!(rows.iter().all(|row| row.len() < ROW || lines(row).count() == 1));
        let found: Vec<&str> = rows.iter().flat_map(|row| lines(row)).collect();
        assert_eq!(found, given);
    }
}
