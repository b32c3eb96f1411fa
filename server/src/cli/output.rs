//! What is printed: tables and facts for people, JSON for scripts.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::Value;

use super::duration;

/// One line of compact JSON.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn json(value: &Value) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{value}")
}

/// A table with a heading. Columns are as wide as what is in them.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let bold = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| rows.iter().map(|row| width(&row[index])).chain([width(column)]).max().unwrap_or(0))
        .collect();
    let heading: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let heading = line(&heading, &widths);
    if bold {
        writeln!(out, "\x1b[1m{heading}\x1b[0m")?;
    } else {
        writeln!(out, "{heading}")?;
    }
    for row in rows {
        writeln!(out, "{}", line(row, &widths))?;
    }
    Ok(())
}

/// Names and values, one pair a line; what has no value is left out.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn facts(pairs: &[(&str, String)]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let widest = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(out, "{name:widest$}  {}", clean(value))?;
    }
    Ok(())
}

/// Bytes as they are compared by people.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A length of time in milliseconds, for people.
pub(crate) fn span(millis: u64) -> String {
    duration::show(Duration::from_millis(millis))
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, wide) in cells.iter().zip(widths) {
        let cell = clean(cell);
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', wide + 2 - width(&cell).min(*wide)));
    }
    line.trim_end().to_owned()
}

/// Characters, which is near enough to columns for aligning.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Control characters could move the cursor of the terminal, or worse.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_control_characters_are_not_let_through() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(line(&row(["é", "b"]), &[3, 1]), "é    b");
        assert_eq!(line(&row(["a\x1b[2J", ""]), &[5, 1]), "a\u{fffd}[2J");
    }
}
