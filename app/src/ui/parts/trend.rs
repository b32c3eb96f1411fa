//! A small drawing of how a figure came about.

use leptos::prelude::*;

/// The drawing's own units.
const WIDTH: usize = 72;
const HEIGHT: u64 = 20;

/// The points of a line through `values`, from left to right, the greatest at the top.
#[must_use]
pub fn points(values: &[u64]) -> String {
    use std::fmt::Write as _;
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let last = values.len().saturating_sub(1).max(1);
    let mut points = String::new();
    for (index, value) in values.iter().enumerate() {
        let x = index * WIDTH / last;
        // One unit is left above and below, for the width of the line.
        let y = HEIGHT - 1 - u64::try_from(u128::from(*value) * u128::from(HEIGHT - 2) / u128::from(most)).unwrap_or(0);
        // Writing to a string cannot fail.
        let _ = write!(points, "{x},{y} ");
    }
    points.pop();
    points
}

/// How a figure came about in the last hour. The words say what the line shows, for those who cannot see it.
#[component]
pub fn TrendLine(
    /// The points.
    points: String,
    /// What they show.
    about: String,
) -> impl IntoView {
    view! {
        <svg class="trend" viewBox="0 0 72 20" role="img" aria-label=about preserveAspectRatio="none">
            <polyline points=points></polyline>
        </svg>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_from_left_to_right_and_the_greatest_is_on_top() {
        assert_eq!(points(&[0, 5, 10]), "0,19 36,10 72,1");
        assert_eq!(points(&[0, 0]), "0,19 72,19");
        assert_eq!(points(&[u64::MAX, 0]), "0,1 72,19");
        assert_eq!(points(&[7]), "0,1");
        assert_eq!(points(&[]), "");
    }
}
