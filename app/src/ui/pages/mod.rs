//! One file a route; what a page keeps in the browser lies beside it.

pub mod audit;
pub mod board;
pub mod filter;
pub mod find;
pub mod inspection;
pub mod lease;
pub mod leases;
pub mod not_found;
pub mod records;
pub mod routes;
#[cfg(feature = "ssr")]
pub mod sign_in;

pub use audit::AuditPage;
pub use find::FindPage;
pub use lease::LeasePage;
pub use leases::LeasesPage;
pub use not_found::NotFound;
pub use routes::RoutesPage;
