//! What every store must do, as seen through the engine's door: here on PostgreSQL. Each promise is one test; each store
//! runs them all, and those of its own besides.

mod access;
mod backup;
mod connections;
mod copying;
#[path = "database/postgres.rs"]
mod database;
mod differential;
mod durability;
mod estate;
mod fixture;
mod going_back;
mod idempotency;
mod leases;
mod life;
mod lists;
mod nodes;
mod outage;
#[path = "../reference/mod.rs"]
#[expect(dead_code, reason = "shared with the test of the rules, which also has outages and retention")]
mod reference;
mod remembered;
mod retention;
#[path = "../server/mod.rs"]
mod server;
mod shared_backup;
mod side_by_side;
mod takeover;
mod timeline;
mod upgrade;
mod waiting;
#[path = "database/direct.rs"]
mod way;
