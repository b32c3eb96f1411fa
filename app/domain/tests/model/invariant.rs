//! The promises that are checked on every step, by name.

use crate::world::World;

/// A promise of the product: an invariant of the specification by its number, or a rule of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// 1, on server time.
    NoOverlap,
    /// 1, on the holders' own clocks.
    BelieverHolds,
    /// 2.
    TokensRise,
    /// 3.
    NoRenewalAfterExpiry,
    /// 4.
    OwnLeaseOnly,
    /// 5.
    EndsOnce,
    /// 7.
    StateIsReplay,
    /// 9.
    FirstInFirstOut,
    /// 10.
    NoGrantToTheGone,
    /// 11.
    FreeIsGranted,
    /// 12.
    HoldsAndDelays,
    /// 13.
    TimeNeverFalls,
    /// 14.
    AllOrNothing,
    /// 15.
    DeadIsNotShownHeld,
    /// 17.
    BreaksAreSigned,
    /// Section 2, outage.
    OutageGivesItsDue,
    /// Section 3, waiters.
    WaitingEnds,
    /// Section 3, renew.
    RenewalNeverShortens,
    /// Section 3, break.
    BreakOnlyForward,
    /// Section 3, quarantine.
    QuarantineStopsGrants,
    /// Section 3, all operations: what was asked is what was done, and the answer says so.
    AnswersAreTrue,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broken {
    pub(crate) invariant: Invariant,
    pub(crate) how: String,
}

macro_rules! invariants {
    ($($variant:ident => $name:literal,)*) => {
        impl Invariant {
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        /// One stateright property for each invariant.
        pub(crate) fn properties<M: stateright::Model<State = World>>() -> Vec<stateright::Property<M>> {
            vec![$(stateright::Property::always($name, |_, world: &World| {
                world.broken.as_ref().is_none_or(|broken| broken.invariant != Invariant::$variant)
            }),)*]
        }
    };
}

invariants! {
    NoOverlap => "1 held intervals of a key never overlap on server time",
    BelieverHolds => "1 whoever believes on its own clock to hold a key holds it",
    TokensRise => "2 tokens strictly increase",
    NoRenewalAfterExpiry => "3 no renewal succeeds at or after expiry",
    OwnLeaseOnly => "4 a command touches only the lease it names",
    EndsOnce => "5 a lease ends exactly once",
    StateIsReplay => "7 the state is the replay of its events",
    FirstInFirstOut => "9 first in, first out among live waiters",
    NoGrantToTheGone => "10 no grant to a waiter known gone",
    FreeIsGranted => "11 a free key is granted at once, to the first live waiter if any",
    HoldsAndDelays => "12 lock delay, minimum and maximum hold are kept",
    TimeNeverFalls => "13 time never decreases",
    AllOrNothing => "14 acquire-many leaves nothing partial",
    DeadIsNotShownHeld => "15 nothing dead is shown as held",
    BreaksAreSigned => "17 every break has actor, reason and time",
    OutageGivesItsDue => "an outage gives what it owes and no more",
    WaitingEnds => "waiting ends at its deadline, with one answer",
    RenewalNeverShortens => "a renewal never shortens unless asked",
    BreakOnlyForward => "a second break only brings the end forward",
    QuarantineStopsGrants => "nothing is granted on a quarantined key",
    AnswersAreTrue => "the answer is what was asked and done",
}

/// Fails with the invariant and how it was broken, unless `holds`.
pub(crate) fn check(holds: bool, invariant: Invariant, how: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { invariant, how: how() }) }
}
