//! Job Leases: the server and the command line.

pub mod cli;
pub mod serve;

mod backend;
mod bootstrap;
mod http;
mod upkeep;
