//! `/`: the leases.

use leptos::prelude::*;
use leptos_meta::Title;

/// The first screen.
#[component]
pub fn LeasesPage() -> impl IntoView {
    view! {
        <Title text="Job Leases"/>
        <main id="main">
            <h1>"Job Leases"</h1>
        </main>
    }
}
