//! Job Leases: the server and the command line.

pub mod cli;
pub mod serve;

pub use database::Database;

mod backend;
mod bootstrap;
mod database;
mod http;
mod upkeep;
