//! What every store must do, as seen through the engine's door. Each promise is one test; each store runs them all.

mod access;
mod durability;
mod files;
mod fixture;
mod idempotency;
mod leases;
mod lists;
mod outage;
mod retention;
mod timeline;
mod waiting;
