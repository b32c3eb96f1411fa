//! Leases: what a key's state is, what a command does to it, and what happened as events.
//!
//! [`decide`] is the one place where a lease command is judged. It first [`settle`]s the key at `now`, then answers, and
//! every change it makes to the state goes through [`Room::apply`], so that the state is always the replay of its events.

mod command;
mod decide;
mod event;
mod many;
mod outage;
mod refusal;
mod reply;
mod room;
mod rules;
mod settle;
mod state;
mod token;

#[cfg(test)]
mod tests;

pub use command::{Acquire, Command, Wait};
pub use decide::{Answer, Context, Decision, decide};
pub use event::{BreakRequested, Change, Ended, Event, Granted, Origin, Renewed};
pub use many::decide_many;
pub use outage::Outage;
pub use refusal::{Busy, KeyBusy, Refusal};
pub use reply::{KeyReading, LeaseReading, ReleaseOutcome, Reply, Verdict};
pub use room::{Queue, Room, Waiter, WaiterId};
pub use rules::{RangeError, Rules};
pub use settle::{Settled, Woken, settle};
pub use state::{Breaking, Ending, KeyState, KeyStatus, Lease, LeaseStatus, Outcome, Quarantine};
pub use token::{FencingToken, LeaseId, LeaseIdError};
