//! Statements for many rows at once, prepared for a few sizes so that the statement cache serves them all.

use std::sync::OnceLock;

/// How many rows one statement takes where batches are large: any number of rows is a few of these.
const FEW: [usize; 4] = [64, 16, 4, 1];

/// A statement over any number of rows: `head (?, ?), (?, ?) tail`, made for `N` sizes, the largest first.
pub(super) struct Bulk<const N: usize> {
    head: &'static str,
    columns: usize,
    tail: &'static str,
    sizes: [usize; N],
    made: [OnceLock<Box<str>>; N],
}

impl Bulk<{ FEW.len() }> {
    pub(super) const fn new(head: &'static str, columns: usize, tail: &'static str) -> Self {
        Self { head, columns, tail, sizes: FEW, made: [const { OnceLock::new() }; FEW.len()] }
    }
}

impl<const N: usize> Bulk<N> {
    /// For every number of rows up to `N`: no more than that are always one statement.
    pub(super) const fn for_each_size(head: &'static str, columns: usize, tail: &'static str) -> Self {
        let mut sizes = [0; N];
        let mut index = 0;
        while index < N {
            sizes[index] = N - index;
            index += 1;
        }
        Self { head, columns, tail, sizes, made: [const { OnceLock::new() }; N] }
    }

    /// The statement for `sizes[index]` rows.
    fn sql(&'static self, index: usize) -> &'static str {
        self.made[index].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            let rows = vec![row; self.sizes[index]].join(", ");
            format!("{} {rows} {}", self.head, self.tail).into_boxed_str()
        })
    }

    /// The statements for `rows`, each with the rows it is for.
    pub(super) fn statements<'r, T>(&'static self, rows: &'r [T]) -> impl Iterator<Item = (&'static str, &'r [T])> {
        let mut rest = rows;
        std::iter::from_fn(move || {
            let index = self.sizes.iter().position(|&size| size <= rest.len())?;
            let (now, later) = rest.split_at(self.sizes[index]);
            rest = later;
            Some((self.sql(index), now))
        })
    }

    /// Every statement it can make, for the test that prepares them all.
    #[cfg(test)]
    pub(super) fn all(&'static self) -> impl Iterator<Item = &'static str> {
        (0..N).map(|index| self.sql(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_statement() {
        static PAIRS: Bulk<4> = Bulk::new("INSERT INTO t VALUES", 2, "");
        static EACH: Bulk<64> = Bulk::for_each_size("INSERT INTO t VALUES", 2, "");
        for count in [0, 1, 3, 4, 63, 64, 65, 149, 256] {
            let rows: Vec<usize> = (0..count).collect();
            let seen: Vec<usize> = PAIRS.statements(&rows).flat_map(|(_, rows)| rows.to_vec()).collect();
            assert_eq!(seen, rows);
            let seen: Vec<usize> = EACH.statements(&rows).flat_map(|(_, rows)| rows.to_vec()).collect();
            assert_eq!(seen, rows);
            assert_eq!(EACH.statements(&rows).count(), count.div_ceil(64));
        }
        let (sql, _) = PAIRS.statements(&[0; 4]).next().unwrap();
        assert_eq!(sql, "INSERT INTO t VALUES (?, ?), (?, ?), (?, ?), (?, ?) ");
    }
}
