//! The model is worth what it catches: each test bends one rule and names the invariant that notices.

use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model};

use crate::bounds::world;
use crate::invariant::Invariant::{self, *};
use crate::mutants::*;
use crate::rulebook::Rulebook;
use crate::step::Leases;

/// Explores a world until something is broken; it must be this.
fn caught(rules: impl Rulebook, in_world: &'static str, by: Invariant, holders_only: bool) {
    let model = Leases { bounds: world(in_world), rules: Arc::new(rules), coverage: Arc::default(), holders_only };
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let steps = |path: &stateright::Path<_, _>| Vec::len(&path.clone().into_actions());
    let Some(shortest) = discoveries.values().map(steps).min() else {
        panic!("nothing was noticed in {} states", checker.unique_state_count());
    };
    let noticed: Vec<_> = discoveries.iter().filter(|(_, path)| steps(path) == shortest).collect();
    println!("{} states, {shortest} steps: {:?}", checker.unique_state_count(), noticed[0].1.clone().into_actions());
    let broken: Vec<_> = noticed.iter().map(|(_, path)| path.last_state().broken.clone()).collect();
    assert!(noticed.iter().any(|(name, _)| **name == by.name()), "not {}, but {broken:#?}", by.name());
}

macro_rules! mutations {
    ($($test:ident: $mutant:ident in $world:literal by $invariant:ident $(from $holders:ident)?;)*) => {
        $(
            #[test]
            fn $test() {
                caught($mutant, $world, $invariant, [false $(, stringify!($holders) == "holders")?].contains(&true));
            }
        )*
    };
}

mutations! {
    renewing_after_expiry_is_caught: RenewsAfterExpiry in "calm" by NoRenewalAfterExpiry;
    renewing_an_ended_lease_is_caught: RenewsTheEnded in "calm" by NoRenewalAfterExpiry;
    renewing_for_less_is_caught: RenewsForLess in "calm" by RenewalNeverShortens;
    renewing_for_less_is_seen_by_the_holder: RenewsForLess in "calm" by BelieverHolds from holders;
    renewing_past_max_hold_is_caught: RenewsPastMaxHold in "limits and operators" by HoldsAndDelays;
    expiring_early_is_caught: ExpiresEarly in "calm" by NoOverlap;
    expiring_early_is_seen_by_the_holder: ExpiresEarly in "calm" by BelieverHolds from holders;
    a_newcomer_who_passes_a_waiter_is_caught: NewcomerPassesWaiters in "calm" by FirstInFirstOut;
    serving_the_last_first_is_caught: LastInFirstOut in "calm" by FirstInFirstOut;
    serving_a_dead_waiter_is_caught: ServesTheGone in "one fault" by NoGrantToTheGone;
    ignoring_a_deadline_is_caught: ForgetsDeadlines in "calm" by WaitingEnds;
    timing_out_silently_is_caught: TimesOutSilently in "calm" by WaitingEnds;
    leaving_a_free_key_to_nobody_is_caught: ReleaseServesNobody in "calm" by FreeIsGranted;
    reusing_a_token_is_caught: ReusesTokens in "calm" by TokensRise;
    a_transfer_that_keeps_the_token_is_caught: TransferKeepsTheToken in "limits and operators" by TokensRise;
    releasing_a_successor_is_caught: ReleasesASuccessor in "calm" by OwnLeaseOnly;
    releasing_a_successor_is_seen_by_the_holder: ReleasesASuccessor in "calm" by BelieverHolds from holders;
    forgetting_lock_delay_is_caught: ForgetsLockDelay in "limits and operators" by HoldsAndDelays;
    forgetting_min_hold_is_caught: ForgetsMinHold in "limits and operators" by HoldsAndDelays;
    cooling_after_undelivered_is_caught: UndeliveredCools in "one fault" by HoldsAndDelays;
    a_second_break_that_postpones_is_caught: SecondBreakPostpones in "limits and operators" by BreakOnlyForward;
    a_break_without_reason_is_caught: BreaksWithoutReason in "limits and operators" by BreaksAreSigned;
    ending_twice_is_caught: EndsTwice in "calm" by EndsOnce;
    granting_a_quarantined_key_is_caught: GrantsTheQuarantined in "limits and operators" by QuarantineStopsGrants;
    taking_a_part_of_many_is_caught: TakesAPart in "two keys" by AllOrNothing;
    an_outage_that_revives_is_caught: OutageRevives in "limits, outages and an operator" by EndsOnce;
    an_outage_past_max_hold_is_caught: OutageMakesImmortal in "limits, outages and an operator" by HoldsAndDelays;
    an_outage_that_gives_nothing_is_caught: OutageGivesNothing in "limits, outages and an operator" by OutageGivesItsDue;
    showing_the_dead_as_held_is_caught: ShowsTheDead in "calm" by DeadIsNotShownHeld;
    losing_an_event_is_caught: LosesAnEvent in "calm" by StateIsReplay;
    a_clock_that_steps_back_is_caught: ClockStepsBack in "calm" by TimeNeverFalls;
    forgetting_former_leases_is_caught: ForgetsFormerLeases in "calm" by AnswersAreTrue;
}
