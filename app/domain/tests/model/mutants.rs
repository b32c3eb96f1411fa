//! Rules with one thing wrong each: production's, asked wrongly or with the answer bent.

use std::sync::Arc;

use domain::lease::{
    self, Acquire, Answer, Change, Command, Context, Decision, FencingToken, KeyState, KeyStatus, Lease, LeaseStatus,
    Outage, Queue, Refusal, Reply, Room, Waiter, WaiterId,
};
use domain::{Span, Timestamp};

use crate::bounds::SHORT_TTL;
use crate::rulebook::Rulebook;
use crate::world::span;

/// A mutant whose `decide` is wrong.
macro_rules! deciders {
    ($($(#[$doc:meta])* $name:ident: |$room:ident, $command:ident, $context:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $name;
            impl Rulebook for $name {
                fn decide(&self, $room: &mut Room, $command: &Command, $context: &mut Context<'_>) -> Decision {
                    $body
                }
            }
        )*
    };
}

deciders! {
    /// A renewal that comes too late is taken, as long as nobody has noticed the expiry.
    RenewsAfterExpiry: |room, command, context| {
        if let Some(lease) = named(room, command).filter(|lease| lease.ended.is_none() && is_renewal(command)) {
            lease.expires_at = lease.expires_at.max(context.now + Span::from_micros(1));
        }
        lease::decide(room, command, context)
    };
    /// A renewal brings an ended lease back.
    RenewsTheEnded: |room, command, context| {
        if let Some(lease) = named(room, command).filter(|_| is_renewal(command)) {
            lease.ended = None;
            lease.expires_at = lease.expires_at.max(context.now + Span::from_micros(1));
        }
        lease::decide(room, command, context)
    };
    /// A renewal shortens as if it had been asked to.
    RenewsForLess: |room, command, context| match command {
        Command::Renew { lease_id, .. } => {
            let command = Command::Renew { lease_id: *lease_id, ttl: Some(span(SHORT_TTL)), shorten: true };
            lease::decide(room, &command, context)
        }
        command => lease::decide(room, command, context)
    };
    /// A renewal goes past the maximum hold.
    RenewsPastMaxHold: |room, command, context| {
        let now = context.now;
        let until = named(room, command)
            .filter(|lease| is_renewal(command) && lease.is_alive(now))
            .and_then(|lease| lease.max_hold_until.take_if(|until| now + lease.ttl > *until));
        let decision = lease::decide(room, command, context);
        if let (Some(lease), Some(_)) = (named(room, command), until) {
            lease.max_hold_until = until;
        }
        decision
    };
    /// A lease ends one unit too early.
    ExpiresEarly: |room, command, context| {
        if let Some(lease) = room.key.lease.as_mut().filter(|lease| lease.ended.is_none()) {
            let early = Timestamp::from_micros(lease.expires_at.as_micros() - 1_000_000);
            if context.now >= early {
                lease.expires_at = early;
            }
        }
        lease::decide(room, command, context)
    };
    /// A newcomer who does not wait is served before those who do.
    NewcomerPassesWaiters: |room, command, context| match command {
        Command::Acquire { wait: None, .. } => with_queue_hidden(room, command, context),
        command => lease::decide(room, command, context)
    };
    /// The last waiter is served first.
    LastInFirstOut: |room, command, context| {
        let joins = matches!(command, Command::Acquire { .. });
        if !joins {
            room.queue = queue(room.queue.iter().cloned().collect::<Vec<_>>().into_iter().rev());
        }
        let decision = lease::decide(room, command, context);
        if !joins {
            room.queue = queue(room.queue.iter().cloned().collect::<Vec<_>>().into_iter().rev());
        }
        decision
    };
    /// Waiters are served though their connections are known to be gone.
    ServesTheGone: |room, command, context| {
        fn everybody(_: WaiterId) -> bool {
            true
        }
        context.is_live = &everybody;
        lease::decide(room, command, context)
    };
    /// Waiters wait on after their deadline.
    ForgetsDeadlines: |room, command, context| {
        let deadlines: Vec<_> = room.queue.iter().map(|waiter| (waiter.id, waiter.deadline)).collect();
        room.queue = queue(room.queue.iter().map(|waiter| with_deadline(waiter, Timestamp::MAX)));
        let decision = lease::decide(room, command, context);
        room.queue = queue(room.queue.iter().map(|waiter| {
            let known = deadlines.iter().find(|(id, _)| *id == waiter.id);
            known.map_or_else(|| Arc::clone(waiter), |(_, deadline)| with_deadline(waiter, *deadline))
        }));
        decision
    };
    /// Waiters whose time is up are sent away without a word.
    TimesOutSilently: |room, command, context| {
        let mut decision = lease::decide(room, command, context);
        decision.settled.woken.retain(|woken| !matches!(woken.result, Err(Refusal::WaitTimeout(_))));
        decision
    };
    /// A release leaves the key free although somebody waits for it.
    ReleaseServesNobody: |room, command, context| match command {
        Command::Release { .. } => with_queue_hidden(room, command, context),
        command => lease::decide(room, command, context)
    };
    /// A grant carries the token of the one before.
    ReusesTokens: |room, command, context| match room.key.lease.as_ref().map(|lease| lease.token) {
        Some(token) => with_token(room, command, context, token),
        None => lease::decide(room, command, context)
    };
    /// A transfer hands the token on with the lease.
    TransferKeepsTheToken: |room, command, context| match (command, room.key.lease.as_ref().map(|lease| lease.token)) {
        (Command::Transfer { .. }, Some(token)) => with_token(room, command, context, token),
        _ => lease::decide(room, command, context)
    };
    /// A release ends whichever lease is held.
    ReleasesASuccessor: |room, command, context| match (command, room.key.held(context.now).map(Lease::id)) {
        (Command::Release { .. }, Some(lease_id)) => lease::decide(room, &Command::Release { lease_id }, context),
        _ => lease::decide(room, command, context)
    };
    /// The key is to be had at once after an expired or broken lease.
    ForgetsLockDelay: |room, command, context| {
        let due = room.key.lease.as_mut().filter(|lease| lease.ended.is_none() && !lease.is_alive(context.now));
        let delay = due.map(|lease| (lease.token, std::mem::take(&mut lease.lock_delay)));
        let decision = lease::decide(room, command, context);
        if let (Some(lease), Some((token, delay))) = (&mut room.key.lease, delay)
            && lease.token == token
        {
            lease.lock_delay = delay;
        }
        decision
    };
    /// The key is to be had at once after a release.
    ForgetsMinHold: |room, command, context| {
        let now = context.now;
        let until = named(room, command)
            .filter(|lease| matches!(command, Command::Release { .. }) && lease.is_alive(now))
            .and_then(|lease| lease.min_hold_until.take_if(|until| now < *until));
        let decision = lease::decide(room, command, context);
        if let (Some(lease), Some(_)) = (named(room, command), until) {
            lease.min_hold_until = until;
        }
        decision
    };
    /// The key cools after a grant that nobody heard of.
    UndeliveredCools: |room, command, context| {
        let mut decision = lease::decide(room, command, context);
        for event in &mut decision.settled.events {
            if let Change::Undelivered(ended) = &mut event.change {
                ended.cooling_until = Some(ended.ended_at + span(1));
                room.key.cooling_until = ended.cooling_until;
            }
        }
        decision
    };
    /// A second break puts the end off.
    SecondBreakPostpones: |room, command, context| {
        if let (Command::Break { grace, lease_id, .. }, Some(lease)) = (command, &mut room.key.lease)
            && !grace.is_zero()
            && lease.is_alive(context.now)
            && lease_id.is_none_or(|id| id == lease.id())
        {
            lease.breaking = None;
        }
        lease::decide(room, command, context)
    };
    /// A broken lease does not say why.
    BreaksWithoutReason: |room, command, context| {
        let mut decision = lease::decide(room, command, context);
        for event in &mut decision.settled.events {
            if let Change::Broken(ended) = &mut event.change {
                ended.reason = None;
            }
        }
        decision
    };
    /// A lease ends twice.
    EndsTwice: |room, command, context| {
        let mut decision = lease::decide(room, command, context);
        let events = &mut decision.settled.events;
        if let Some(end) = events.iter().position(|event| event.change.ended().is_some()) {
            events.insert(end, events[end].clone());
        }
        decision
    };
    /// A free key is granted although it is quarantined.
    GrantsTheQuarantined: |room, command, context| {
        let quarantine = room.key.quarantine.take();
        let acquire = matches!(command, Command::Acquire { .. });
        if !acquire || room.key.status(context.now) != KeyStatus::Free {
            room.key.quarantine = quarantine;
            return lease::decide(room, command, context);
        }
        let decision = lease::decide(room, command, context);
        room.key.quarantine = quarantine;
        decision
    };
    /// A change is not written down.
    LosesAnEvent: |room, command, context| {
        let mut decision = lease::decide(room, command, context);
        decision.settled.events.retain(|event| !matches!(event.change, Change::Renewed(_)));
        decision
    };
    /// The clock steps back.
    ClockStepsBack: |room, command, context| {
        context.now = Timestamp::from_micros(context.now.as_micros() - 1_000_000);
        lease::decide(room, command, context)
    };
    /// Who lost a lease is told that there never was one.
    ForgetsFormerLeases: |room, command, context| {
        context.former = None;
        lease::decide(room, command, context)
    };
}

/// Acquire-many takes what it can get.
pub(crate) struct TakesAPart;

impl Rulebook for TakesAPart {
    fn decide_many(&self, rooms: &mut [&mut Room], requests: &[Acquire], context: &mut Context<'_>) -> Decision {
        let mut all = Decision { settled: Default::default(), answer: Answer::Done(Reply::Nothing) };
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (room, request) in rooms.iter_mut().zip(requests) {
            let one = lease::decide_many(&mut [&mut **room], std::slice::from_ref(request), context);
            all.settled.events.extend(one.settled.events);
            all.settled.woken.extend(one.settled.woken);
            match one.answer {
                Answer::Done(Reply::Leases(readings)) => taken.extend(readings),
                Answer::Refused(Refusal::KeysBusy(busy)) => refused.extend(busy),
                _ => {}
            }
        }
        all.answer = if refused.is_empty() {
            Answer::Done(Reply::Leases(taken))
        } else {
            Answer::Refused(Refusal::KeysBusy(refused))
        };
        all
    }
}

/// An outage brings a lease back that had run out before it.
pub(crate) struct OutageRevives;

impl Rulebook for OutageRevives {
    fn through(&self, key: &mut KeyState, outage: &Outage) {
        let since = key.lease.as_ref().map_or(outage.from, |lease| lease.acquired_at);
        key.through(&Outage { from: since, ..*outage });
    }
}

/// An outage gives more than the maximum hold allows.
pub(crate) struct OutageMakesImmortal;

impl Rulebook for OutageMakesImmortal {
    fn through(&self, key: &mut KeyState, outage: &Outage) {
        let until = key.lease.as_mut().and_then(|lease| lease.max_hold_until.take());
        key.through(outage);
        if let Some(lease) = &mut key.lease {
            lease.max_hold_until = until;
        }
    }
}

/// An outage gives nothing: everybody who slept through it has lost.
pub(crate) struct OutageGivesNothing;

impl Rulebook for OutageGivesNothing {
    fn through(&self, _: &mut KeyState, _: &Outage) {}
}

/// A list shows as held what nobody has swept.
pub(crate) struct ShowsTheDead;

impl Rulebook for ShowsTheDead {
    fn status(&self, key: &KeyState, now: Timestamp) -> KeyStatus {
        match &key.lease {
            Some(lease) if lease.ended.is_none() && matches!(lease.status(now), LeaseStatus::Ended(_)) => {
                KeyStatus::Held
            }
            _ => key.status(now),
        }
    }
}

fn is_renewal(command: &Command) -> bool {
    matches!(command, Command::Renew { .. })
}

/// The key's last lease, if the command names it.
fn named<'r>(room: &'r mut Room, command: &Command) -> Option<&'r mut Lease> {
    room.key.lease.as_mut().filter(|lease| command.lease_id() == Some(lease.id()))
}

fn queue(waiters: impl Iterator<Item = Arc<Waiter>>) -> Queue {
    let mut queue = Queue::default();
    waiters.for_each(|waiter| queue.join(waiter));
    queue
}

fn with_deadline(waiter: &Waiter, deadline: Timestamp) -> Arc<Waiter> {
    Arc::new(Waiter { deadline, ..waiter.clone() })
}

fn with_queue_hidden(room: &mut Room, command: &Command, context: &mut Context<'_>) -> Decision {
    let hidden = std::mem::take(&mut room.queue);
    let decision = lease::decide(room, command, context);
    room.queue = hidden;
    decision
}

fn with_token(room: &mut Room, command: &Command, context: &mut Context<'_>, token: FencingToken) -> Decision {
    let mut same = || token;
    let mut bent = Context {
        now: context.now,
        rules: context.rules,
        is_live: context.is_live,
        next_token: &mut same,
        actor: context.actor,
        request_id: context.request_id,
        former: context.former.take(),
    };
    lease::decide(room, command, &mut bent)
}
