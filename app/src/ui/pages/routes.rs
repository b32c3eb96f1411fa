//! `/core/routes`: every page that there is, from the table that the router is checked against.

use leptos::prelude::*;
use leptos_meta::Title;

use crate::ui::shell::places::{PLACES, Place};

/// The page.
#[component]
pub fn RoutesPage() -> impl IntoView {
    let rows = PLACES.iter().map(|place| view! { <Row place/> });
    view! {
        <Title text="Route map \u{b7} Job Leases"/>
        <header class="head">
            <p class="eyebrow">"Operations"</p>
            <h1>"Route map"</h1>
            <p class="lede">"Every page, those that the rail does not show included. Fast search finds all of them."</p>
        </header>
        <section class="card" aria-labelledby="routes">
            <header>
                <h2 id="routes">"Routes"</h2>
                <p class="sub">
                    "For programs there is the "<a href="/api/v1/openapi.json" rel="external">"description of the API"</a>"."
                </p>
            </header>
            <div class="scroll">
                <table class="plain-table" aria-labelledby="routes">
                    <thead>
                        <tr>
                            <th scope="col">"route"</th>
                            <th scope="col">"page"</th>
                            <th scope="col">"group"</th>
                            <th scope="col">"in the rail"</th>
                            <th scope="col">"keys"</th>
                        </tr>
                    </thead>
                    <tbody>{rows.collect_view()}</tbody>
                </table>
            </div>
        </section>
    }
}

#[component]
fn Row(place: &'static Place) -> impl IntoView {
    let path = if place.is_address() {
        view! { <a href=place.path>{place.path}</a> }.into_any()
    } else {
        view! { {place.path} }.into_any()
    };
    view! {
        <tr>
            <th scope="row" class="code">{path}</th>
            <td><b>{place.title}</b>": "{place.about}</td>
            <td>{place.group.title()}</td>
            <td>{if place.in_rail { "yes" } else { "no" }}</td>
            <td>{place.key.map(|key| view! { <kbd>"g "{key}</kbd> })}</td>
        </tr>
    }
}
