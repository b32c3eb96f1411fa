//! The console: rendered by the server, then taken over in the browser.
//!
//! - [`shell`](mod@shell) is what every page shares: the document, the rail, the top bar, appearance;
//! - `parts` are small widgets;
//! - `pages` holds one file a route;
//! - `live` turns the event stream into signals.
//!
//! A view's first render must be the same on both sides: no clock, no randomness, no locale. Times are written in UTC
//! and become relative in an effect, once the browser has taken over.

pub mod live;
pub mod pages;
pub mod parts;
pub mod shell;

pub use shell::{App, document::document as shell};

/// Prepares for taking over the page's islands, which the page's script does next.
#[cfg(feature = "hydrate")]
pub fn hydrate() {
    leptos::mount::hydrate_islands();
    live::start();
}
