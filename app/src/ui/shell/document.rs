//! The HTML document around the console.

use leptos::hydration::HydrationScripts;
use leptos::prelude::*;
use leptos_meta::{HashedStylesheet, MetaTags};

use super::App;

/// The whole document. Rendered on the server only; scripts carry the response's nonce.
pub fn document(options: LeptosOptions) -> impl IntoView {
    view! {
        <!DOCTYPE html>
        <html lang="en">
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <HashedStylesheet options=options.clone()/>
                <HydrationScripts options/>
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
}
