//! What every store must do, as seen through the engine's door: here on PostgreSQL by way of pgbouncer in
//! transaction mode, which lends a connection for each transaction; and what becomes of who waits when that is killed.

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
mod pooler;
#[path = "../programs/mod.rs"]
mod programs;
#[path = "../reference/mod.rs"]
#[expect(dead_code, reason = "shared with the test of the rules, which also has outages and retention")]
mod reference;
mod retention;
#[path = "../server/mod.rs"]
mod server;
mod shared_backup;
mod side_by_side;
mod takeover;
mod timeline;
mod upgrade;
mod waiting;
#[path = "database/pooled.rs"]
mod way;
