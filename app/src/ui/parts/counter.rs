//! Figures at the head of a page.

use leptos::prelude::*;

use super::numbers::grouped;
use super::trend::TrendLine;

/// The row that holds the counters.
#[component]
pub fn Counters(children: Children) -> impl IntoView {
    view! { <section class="counters" aria-label="Counters"><dl>{children()}</dl></section> }
}

/// One figure: what it counts, how many, and a few words more.
#[component]
pub fn Counter(
    /// What is counted.
    name: &'static str,
    /// How many.
    #[prop(into)]
    figure: Signal<u64>,
    /// What the figure covers.
    #[prop(into)]
    note: Signal<String>,
    /// Whether it is the page's first figure.
    #[prop(optional)]
    first: bool,
    /// The points of its trend, and what they show.
    #[prop(optional_no_strip)]
    trend: Option<(String, String)>,
) -> impl IntoView {
    view! {
        <div class="counter" class:is-first=first>
            <dt>{name}</dt>
            <dd class="figure">
                {move || grouped(figure.get())}
                {trend.map(|(points, about)| view! { <TrendLine points about/> })}
            </dd>
            <dd class="note">{move || note.get()}</dd>
        </div>
    }
}
