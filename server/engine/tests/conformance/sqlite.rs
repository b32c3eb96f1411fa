//! What every store must do, as seen through the engine's door: here on SQLite. Each promise is one test; each store runs
//! them all, and those of its own besides.

mod access;
mod backup;
#[path = "database/sqlite.rs"]
mod database;
mod differential;
mod durability;
mod estate;
mod files;
mod fixture;
mod idempotency;
mod leases;
mod lists;
mod outage;
#[path = "../reference/mod.rs"]
#[expect(dead_code, reason = "shared with the test of the rules, which also has outages and retention")]
mod reference;
mod retention;
mod timeline;
mod upgrade;
mod waiting;
