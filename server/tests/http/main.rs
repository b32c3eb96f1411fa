//! The API over a real listening server: every operation, every status, every code.

mod access;
mod events;
mod export;
mod fencing;
mod idempotency;
mod leases;
mod openapi;
mod pages;
mod records;
mod running;
mod strict;
mod support;
mod waiting;
