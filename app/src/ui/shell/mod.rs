//! What every page shares: the frame with its rail and top bar, and the routes inside it.

pub mod appearance;
pub mod bar;
#[cfg(feature = "hydrate")]
mod browser;
pub mod choices;
pub mod density;
pub mod document;
pub mod keys;
pub mod places;
pub mod rail;
pub mod search;

use leptos::prelude::*;
use leptos_meta::provide_meta_context;
use leptos_router::SsrMode;
use leptos_router::components::{FlatRoutes, Route, Router};
use leptos_router::path;
use serde::{Deserialize, Serialize};

use self::bar::Bar;
use self::keys::Keys;
use self::rail::Rail;
use super::pages::{AuditPage, FindPage, LeasePage, LeasesPage, NotFound, RoutesPage};
use super::parts::ShapeSheet;
use crate::api::ApiError;
use crate::api::counters::Counters;
use crate::api::sessions::Session;

/// The whole console, below `<body>`.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    view! {
        <ShapeSheet/>
        <Router>
            <Frame>
                <FlatRoutes fallback=NotFound>
                    <Route path=path!("/") view=LeasesPage ssr=SsrMode::Async/>
                    <Route path=path!("/core/leases") view=LeasePage ssr=SsrMode::Async/>
                    <Route path=path!("/core/leases/*key") view=LeasePage ssr=SsrMode::Async/>
                    <Route path=path!("/core/audit") view=AuditPage ssr=SsrMode::Async/>
                    <Route path=path!("/core/find") view=FindPage ssr=SsrMode::Async/>
                    <Route path=path!("/core/routes") view=RoutesPage ssr=SsrMode::Async/>
                </FlatRoutes>
            </Frame>
        </Router>
    }
}

/// What the frame shows around every page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Around {
    /// Who is signed in.
    pub session: Session,
    /// The counters, if they could be read.
    pub counters: Option<Counters>,
}

/// What the frame shows, as read when the document was rendered. In the context of every page.
#[derive(Clone, Copy)]
pub struct AroundResource(pub Resource<Result<Around, ApiError>>);

/// Reads it while the document is rendered.
#[cfg(feature = "ssr")]
async fn around() -> Result<Around, ApiError> {
    use crate::api::{counters, sessions};

    let session = sessions::current(sessions::CurrentRequest {}).await?;
    let counters = counters::get(counters::GetRequest {}).await.ok();
    Ok(Around { session, counters })
}

/// The frame is rendered by the server only: the browser never comes here.
#[cfg(not(feature = "ssr"))]
async fn around() -> Result<Around, ApiError> {
    Err(ApiError::internal())
}

/// Rail, top bar and the page between them.
#[component]
fn Frame(children: Children) -> impl IntoView {
    provide_context(AroundResource(Resource::new_blocking(|| (), |()| around())));
    view! {
        <a class="skip" href="#main" rel="external">"Skip to content"</a>
        <div class="frame">
            <Rail/>
            <Bar/>
            <main id="main" tabindex="-1">
                {children()}
            </main>
        </div>
        <Keys/>
    }
}
