//! The API: what automation and the console call, over HTTP or while a page is rendered.
//!
//! One file a resource, each with its requests and answers, the trait of what stands behind it on the server, and its
//! server functions. All functions are `POST /api/v1/<resource>/<verb>` with a JSON object; reads also answer `GET`
//! with query parameters.

pub mod codec;
pub mod counters;
pub mod error;
#[cfg(feature = "ssr")]
pub mod exchange;
pub mod leases;
pub mod live;
pub mod meta;
pub mod page;
pub mod protocol;
pub mod records;
pub mod sessions;
pub mod timeline;
pub mod tokens;
pub mod values;

#[cfg(feature = "ssr")]
use std::future::Future;
#[cfg(feature = "ssr")]
use std::pin::Pin;

pub use error::ApiError;

/// What the server functions hand their requests to.
#[cfg(feature = "ssr")]
pub struct Backends {
    /// Leases.
    pub leases: Box<dyn leases::LeasesBackend>,
    /// API tokens.
    pub tokens: Box<dyn tokens::TokensBackend>,
    /// Figures.
    pub counters: Box<dyn counters::CountersBackend>,
    /// Records of all kinds.
    pub records: Box<dyn records::RecordsBackend>,
    /// The timeline.
    pub timeline: Box<dyn timeline::TimelineBackend>,
    /// The signed-in session.
    pub sessions: Box<dyn sessions::SessionsBackend>,
    /// The server itself.
    pub meta: Box<dyn meta::MetaBackend>,
}

/// The answer of a backend, when it comes.
#[cfg(feature = "ssr")]
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;
