//! The rail: everyday pages, by group.

use leptos::prelude::*;
use leptos_router::components::A;

use super::places::{Group, PLACES};
use crate::ui::parts::Shape;

/// The way to the everyday pages: beside the page where there is room, else a panel that the bar's button opens. A group
/// without pages is not shown.
#[component]
pub fn Rail() -> impl IntoView {
    let groups = Group::ALL.into_iter().filter_map(|group| {
        let places: Vec<_> = PLACES.iter().filter(|place| place.in_rail && place.group == group).collect();
        if places.is_empty() {
            return None;
        }
        let links = places.into_iter().map(|place| {
            view! { <li><A href=place.path exact=true>{place.title}</A></li> }
        });
        Some(view! {
            <h2>{group.title()}</h2>
            <ul>{links.collect_view()}</ul>
        })
    });
    view! {
        <nav id="rail" class="rail" aria-label="Pages" popover="auto">
            <p class="brand"><Shape of="#lock"/>"Job Leases"</p>
            {groups.collect_view()}
        </nav>
    }
}
