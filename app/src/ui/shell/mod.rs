//! What every page shares.

pub mod document;

use leptos::prelude::*;
use leptos_meta::provide_meta_context;
use leptos_router::SsrMode;
use leptos_router::components::{Route, Router, Routes};
use leptos_router::path;


use super::pages::{LeasesPage, NotFound};

/// The whole console, below `<body>`.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    view! {
        <Router>
            <Routes fallback=NotFound>
                <Route path=path!("/") view=LeasesPage ssr=SsrMode::Async/>
            </Routes>
        </Router>
    }
}
