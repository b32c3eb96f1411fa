//! Tables as Markdown has them, a line at a time: whoever waits for the rest can read what is there.

/// The names of the columns, and the line below them.
pub(crate) fn head(names: &[&str]) {
    println!("| {} |", names.join(" | "));
    println!("|{}", "---|".repeat(names.len()));
}

/// A line.
pub(crate) fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}
