//! The seam between the model and the rules: the model asks a [`Rulebook`], production's answers with the product's own
//! functions, a mutant's with something wrong. So no hook for tests is needed in the rules themselves.

use domain::Timestamp;
use domain::lease::{self, Acquire, Command, Context, Decision, KeyState, KeyStatus, Outage, Room};

/// The rules that the model explores. Left as they are, the methods are production's.
pub(crate) trait Rulebook: Send + Sync + 'static {
    /// Settles a key and decides a command on it.
    fn decide(&self, room: &mut Room, command: &Command, context: &mut Context<'_>) -> Decision {
        lease::decide(room, command, context)
    }

    /// Settles several keys and grants all or none.
    fn decide_many(&self, rooms: &mut [&mut Room], requests: &[Acquire], context: &mut Context<'_>) -> Decision {
        lease::decide_many(rooms, requests, context)
    }

    /// Reads a key through an outage.
    fn through(&self, key: &mut KeyState, outage: &Outage) {
        key.through(outage);
    }

    /// What a list or a page shows of a key that nobody has settled.
    fn status(&self, key: &KeyState, now: Timestamp) -> KeyStatus {
        key.status(now)
    }
}

/// The rules of the product.
pub(crate) struct Production;

impl Rulebook for Production {}
