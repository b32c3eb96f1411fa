//! The real server, badly treated: killed, paused, its wall clock moved, its callers gone. What it acknowledged must hold.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests are clients: they live in real time and count on their own clocks"
)]

mod backup;
mod checker;
mod cluster;
mod disk;
mod durability;
mod failover;
mod history;
mod nodes;
mod postgres;
mod process;
#[path = "../../engine/tests/programs/mod.rs"]
mod programs;
#[path = "../../engine/tests/server/mod.rs"]
mod server;
mod upgrade;
mod wire;
