//! One file a route; what a page keeps in the browser lies beside it.

pub mod board;
pub mod leases;
pub mod not_found;
#[cfg(feature = "ssr")]
pub mod sign_in;

pub use leases::LeasesPage;
pub use not_found::NotFound;
