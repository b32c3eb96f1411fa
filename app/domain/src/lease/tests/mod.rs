//! What each operation promises, one test a promise.

mod acquire;
mod breaking;
mod release;
mod renew;
mod transfer;
mod waiting;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::{
    Acquire, Answer, Command, Context, Decision, FencingToken, Lease, LeaseId, LeaseReading, Outcome, Refusal, Reply,
    Room, Rules, Wait, WaiterId, decide,
};
use crate::{Actor, LeaseKey, Metadata, Owner, Reason, Span, Timestamp};

const SECOND: Span = Span::millis(1_000);

/// A key, and a clock in seconds.
struct Desk {
    room: Room,
    now: Timestamp,
    rules: Rules,
    gone: HashSet<WaiterId>,
    former: Option<Lease>,
    last_token: u64,
}

impl Desk {
    fn new() -> Self {
        Self {
            room: Room::new(LeaseKey::parse("backup").unwrap()),
            now: Timestamp::from_micros(1_000_000_000),
            rules: Rules { waiters_per_key: 2, ..Rules::default() },
            gone: HashSet::new(),
            former: None,
            last_token: 0,
        }
    }

    fn pass(&mut self, seconds: u32) {
        self.now = self.now + Span::millis(seconds * 1_000);
    }

    fn decide(&mut self, command: &Command) -> Decision {
        let last_token = &mut self.last_token;
        let mut next_token = || {
            *last_token += 1;
            FencingToken::new(*last_token).unwrap()
        };
        let gone = &self.gone;
        let mut context = Context {
            now: self.now,
            rules: &self.rules,
            is_live: &|waiter| !gone.contains(&waiter),
            next_token: &mut next_token,
            actor: &Arc::new(Actor::system("operator")),
            request_id: None,
            former: self.former.as_ref().map(Cow::Borrowed),
        };
        decide(&mut self.room, command, &mut context)
    }

    fn ask(&mut self, command: &Command) -> Answer {
        self.decide(command).answer
    }

    /// Takes the key, which must be free.
    fn take(&mut self, request: Acquire) -> LeaseId {
        let answer = self.ask(&Command::Acquire { request, wait: None });
        lease(answer).id()
    }

    fn renew(&mut self, lease_id: LeaseId, seconds: u32) -> Answer {
        self.ask(&Command::Renew { lease_id, ttl: Some(Span::millis(seconds * 1_000)), shorten: false })
    }

    fn release(&mut self, lease_id: LeaseId) -> Answer {
        self.ask(&Command::Release { lease_id })
    }

    fn break_lease(&mut self, grace: u32) -> Answer {
        self.ask(&Command::Break { reason: reason(), grace: Span::millis(grace * 1_000), lease_id: None })
    }

    fn wait(&mut self, owner: &str, waiter: u64, seconds: u32) -> Answer {
        let wait = Wait { waiter: WaiterId(waiter), time: Span::millis(seconds * 1_000) };
        self.ask(&Command::Acquire { request: request(owner), wait: Some(wait) })
    }
}

/// For ten seconds, with no other terms.
fn request(owner: &str) -> Acquire {
    Acquire {
        owner: Owner::parse(owner).unwrap(),
        job_key: None,
        ttl: Span::millis(10_000),
        min_hold: Span::ZERO,
        max_hold: None,
        lock_delay: Span::ZERO,
        subjects: Arc::from([]),
        metadata: Metadata::EMPTY,
    }
}

fn reason() -> Reason {
    Reason::parse("it hangs").unwrap()
}

fn lease(answer: Answer) -> Lease {
    match answer {
        Answer::Done(
            Reply::Lease(LeaseReading { lease, .. }) | Reply::Released { lease: LeaseReading { lease, .. }, .. },
        ) => lease,
        other => panic!("{other:?}"),
    }
}

fn refusal(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

fn lost(reason: Outcome) -> Refusal {
    Refusal::LeaseLost { reason, holder: None }
}
