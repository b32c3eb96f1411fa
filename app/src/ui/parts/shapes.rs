//! States told by shape and word, so that colour is never needed to read them.

use leptos::prelude::*;

use crate::api::leases::Status;

/// The shapes, drawn once a page and referred to by id.
const SHEET: &str = concat!(
    r#"<symbol id="disc" viewBox="0 0 10 10"><circle cx="5" cy="5" r="4.6" fill="currentColor"/></symbol>"#,
    r#"<symbol id="half" viewBox="0 0 10 10"><circle cx="5" cy="5" r="4.2" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M5 .8a4.2 4.2 0 0 1 0 8.4z" fill="currentColor"/></symbol>"#,
    r#"<symbol id="tick" viewBox="0 0 10 10"><path d="M1 5.4l2.8 2.8L9 2" fill="none" stroke="currentColor" stroke-width="1.7"/></symbol>"#,
    r#"<symbol id="slash" viewBox="0 0 10 10"><circle cx="5" cy="5" r="4.2" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M2 8l6-6" stroke="currentColor" stroke-width="1.5"/></symbol>"#,
    r#"<symbol id="cross" viewBox="0 0 10 10"><path d="M1.5 1.5l7 7M8.5 1.5l-7 7" stroke="currentColor" stroke-width="1.9"/></symbol>"#,
    r#"<symbol id="arrow" viewBox="0 0 10 10"><path d="M1 5h7M5.4 2l3 3-3 3" fill="none" stroke="currentColor" stroke-width="1.6"/></symbol>"#,
    r#"<symbol id="ring" viewBox="0 0 10 10"><circle cx="5" cy="5" r="4.2" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.2 1.6"/></symbol>"#,
    r#"<symbol id="lock" viewBox="0 0 20 20"><g fill="none" stroke="currentColor" stroke-width="2"><rect x="2" y="8" width="16" height="10" rx="2"/><path d="M6 8V6a4 4 0 0 1 8 0v2M10 12v2"/></g></symbol>"#,
    r#"<symbol id="bars" viewBox="0 0 20 20"><path d="M3 5.5h14M3 10h14M3 14.5h14" stroke="currentColor" stroke-width="2"/></symbol>"#,
);

/// Draws the shapes for all who refer to them. Once a document.
#[component]
pub fn ShapeSheet() -> impl IntoView {
    view! { <svg class="shape-sheet" aria-hidden="true" inner_html=SHEET></svg> }
}

/// One shape. It says nothing by itself: a word always stands beside it.
#[component]
pub fn Shape(
    /// Its id in the sheet, with `#` in front.
    #[prop(into)]
    of: Signal<&'static str>,
) -> impl IntoView {
    view! { <svg class="shape" aria-hidden="true"><use_ href=of></use_></svg> }
}

/// How a lease's status looks: its colour class, its shape, its word.
#[must_use]
pub const fn look(status: Status) -> (&'static str, &'static str, &'static str) {
    let (class, shape) = match status {
        Status::Held => ("status is-held", "#disc"),
        Status::Breaking => ("status is-wait", "#half"),
        Status::Released => ("status is-rest", "#tick"),
        Status::Transferred => ("status is-rest", "#arrow"),
        Status::Expired => ("status is-bad", "#slash"),
        Status::Broken => ("status is-bad", "#cross"),
        Status::Undelivered => ("status is-bad", "#ring"),
    };
    (class, shape, status.as_str())
}

/// A lease's status.
#[component]
pub fn StatusMark(
    /// What to show.
    status: Memo<Status>,
) -> impl IntoView {
    let looks = move || look(status.get());
    view! {
        <span class=move || looks().0>
            <Shape of=Signal::derive(move || looks().1)/>
            {move || looks().2}
        </span>
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_states_share_a_shape_or_a_word_and_every_shape_is_drawn() {
        let states = [
            Status::Held,
            Status::Breaking,
            Status::Released,
            Status::Transferred,
            Status::Expired,
            Status::Broken,
            Status::Undelivered,
        ]
        .map(look);
        let shapes: BTreeSet<_> = states.iter().map(|look| look.1).collect();
        let words: BTreeSet<_> = states.iter().map(|look| look.2).collect();
        assert_eq!((shapes.len(), words.len()), (states.len(), states.len()));
        for shape in shapes {
            assert!(SHEET.contains(&format!("id=\"{}\"", &shape[1..])), "{shape} is not drawn");
        }
    }
}
