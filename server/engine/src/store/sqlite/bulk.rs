//! Statements for many rows at once, prepared for a few sizes so that the statement cache serves them all.

use std::sync::OnceLock;

/// How many rows one statement takes. Any number of rows is a few of these.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A statement over any number of rows: `head (?, ?), (?, ?) tail`.
pub(super) struct Bulk {
    head: &'static str,
    columns: usize,
    tail: &'static str,
    made: [OnceLock<Box<str>>; SIZES.len()],
}

impl Bulk {
    pub(super) const fn new(head: &'static str, columns: usize, tail: &'static str) -> Self {
        Self { head, columns, tail, made: [const { OnceLock::new() }; SIZES.len()] }
    }

    /// The statement for `SIZES[index]` rows.
    fn sql(&'static self, index: usize) -> &'static str {
        self.made[index].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            let rows = vec![row; SIZES[index]].join(", ");
            format!("{} {rows} {}", self.head, self.tail).into_boxed_str()
        })
    }

    /// The statements for `rows`, each with the rows it is for.
    pub(super) fn statements<'r, T>(&'static self, rows: &'r [T]) -> impl Iterator<Item = (&'static str, &'r [T])> {
        let mut rest = rows;
        std::iter::from_fn(move || {
            let index = SIZES.iter().position(|&size| size <= rest.len())?;
            let (now, later) = rest.split_at(SIZES[index]);
            rest = later;
            Some((self.sql(index), now))
        })
    }

    /// Every statement it can make, for the test that prepares them all.
    #[cfg(test)]
    pub(super) fn all(&'static self) -> impl Iterator<Item = &'static str> {
        (0..SIZES.len()).map(|index| self.sql(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_statement() {
        static PAIRS: Bulk = Bulk::new("INSERT INTO t VALUES", 2, "");
        for count in [0, 1, 3, 4, 63, 64, 65, 149, 256] {
            let rows: Vec<usize> = (0..count).collect();
            let seen: Vec<usize> = PAIRS.statements(&rows).flat_map(|(_, rows)| rows.to_vec()).collect();
            assert_eq!(seen, rows);
        }
        let (sql, _) = PAIRS.statements(&[0; 4]).next().unwrap();
        assert_eq!(sql, "INSERT INTO t VALUES (?, ?), (?, ?), (?, ?), (?, ?) ");
    }
}
