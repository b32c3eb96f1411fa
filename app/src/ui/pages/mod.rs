//! One file a route.

pub mod leases;
pub mod not_found;

pub use leases::LeasesPage;
pub use not_found::NotFound;
