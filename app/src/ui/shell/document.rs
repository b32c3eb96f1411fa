//! The HTML document around the console.

use leptos::hydration::HydrationScripts;
use leptos::prelude::*;
use leptos_meta::{HashedStylesheet, MetaTags};

use super::App;
use super::appearance::Appearance;
use super::choices::Choice as _;
use super::density::Density;

/// The whole document. Rendered on the server only; its scripts carry the response's nonce.
pub fn document(options: LeptosOptions) -> impl IntoView {
    let (appearance, density) = (Appearance::current(), Density::current());
    view! {
        <!DOCTYPE html>
        <html lang="en" data-appearance=appearance.as_str() data-density=density.as_str()>
            <head>
                <Preamble appearance options=options.clone()/>
                <HydrationScripts options islands=true/>
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
}

/// What the head of every document begins with.
#[component]
pub fn Preamble(
    /// Light or dark.
    appearance: Appearance,
    /// Where the style is.
    options: LeptosOptions,
) -> impl IntoView {
    view! {
        <meta charset="utf-8"/>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <meta name="color-scheme" content=appearance.color_scheme()/>
        <meta name="robots" content="noindex"/>
        <link rel="icon" href="/favicon.svg" type="image/svg+xml"/>
        <HashedStylesheet options/>
    }
}
