//! What is shown where no page is.

use leptos::prelude::*;
use leptos_meta::Title;

/// The page for an address that leads nowhere; answered with status 404.
#[component]
pub fn NotFound() -> impl IntoView {
    #[cfg(feature = "ssr")]
    if let Some(response) = use_context::<leptos_axum::ResponseOptions>() {
        response.set_status(http::StatusCode::NOT_FOUND);
    }
    view! {
        <Title text="No such page · Job Leases"/>
        <header class="head">
            <h1>"No such page"</h1>
            <p class="lede">
                "Nothing is kept at this address. It may have been mistyped, or have come from another version."
            </p>
        </header>
        <p><a href="/">"Go to Job Leases"</a></p>
    }
}
