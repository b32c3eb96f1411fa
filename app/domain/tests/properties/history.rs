//! What holds of every history, whatever happens in it.

use std::collections::BTreeMap;

use domain::Timestamp;
use domain::lease::{Answer, Change, Command, Event, KeyState, KeyStatus, Outcome, ReleaseOutcome, Reply, Verdict};
use proptest::prelude::*;

use crate::script::{KEYS, Step, history};
use crate::service::{Line, Service, Task};

/// Lives through a history, looking at the service before and after every step.
fn live(
    steps: &[Step],
    mut look: impl FnMut(&Service, &Task, Option<&domain::lease::Decision>) -> Result<(), TestCaseError>,
) -> Result<Service, TestCaseError> {
    let mut service = Service::new();
    for step in steps {
        let task = service.task(step);
        let decision = service.perform(&task);
        look(&service, &task, decision.as_ref())?;
    }
    Ok(service)
}

fn events(service: &Service) -> impl Iterator<Item = &Event> {
    service.log.iter().filter_map(|line| match line {
        Line::Event(event) => Some(event),
        Line::Outage(_) => None,
    })
}

proptest! {
    #[test]
    fn the_state_is_the_replay_of_its_events(steps in history()) {
        let service = live(&steps, |_, _, _| Ok(()))?;
        for index in 0..KEYS {
            prop_assert_eq!(&service.replayed(index), &service.rooms[index].key);
        }
    }

    /// From any point on, as after retention: a state that was kept and the events after it.
    #[test]
    fn a_kept_state_and_the_later_events_give_the_state(steps in history(), keep in 0..60_usize) {
        let mut kept: Option<(Vec<KeyState>, usize)> = None;
        let mut passed = 0;
        let service = live(&steps, |service, _, _| {
            if passed == keep {
                kept = Some((service.rooms.iter().map(|room| room.key.clone()).collect(), service.log.len()));
            }
            passed += 1;
            Ok(())
        })?;
        let Some((mut states, position)) = kept else { return Ok(()) };
        for line in &service.log[position..] {
            for state in &mut states {
                match line {
                    Line::Event(event) if event.lease_key == state.lease_key => state.apply(event),
                    Line::Event(_) => {}
                    Line::Outage(outage) => state.through(outage),
                }
            }
        }
        for (state, room) in states.iter().zip(&service.rooms) {
            prop_assert_eq!(state, &room.key);
        }
    }

    #[test]
    fn tokens_rise_and_each_is_given_once(steps in history()) {
        let service = live(&steps, |_, _, _| Ok(()))?;
        let tokens: Vec<_> = service.grants.iter().map(|(_, token)| *token).collect();
        prop_assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
    }

    #[test]
    fn a_lease_never_lasts_past_its_ceiling(steps in history()) {
        live(&steps, |service, task, _| {
            for lease in service.rooms.iter().filter_map(|room| room.key.lease.as_ref()) {
                prop_assert!(lease.expires_at <= lease.ceiling(), "{:?} after {:?}", lease, task);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_renewal_never_shortens_unless_asked_and_never_revives(steps in history()) {
        let mut expiries: BTreeMap<_, Timestamp> = BTreeMap::new();
        live(&steps, |service, task, decision| {
            for event in decision.iter().flat_map(|decision| &decision.settled.events) {
                let Change::Renewed(renewed) = &event.change else { continue };
                let was = expiries[&renewed.fencing_token];
                prop_assert!(service.now < was, "renewed at {} what expired at {}", service.now, was);
                prop_assert_eq!(renewed.margin_us, was.since(service.now));
                let shorten = matches!(task, Task::One(_, Command::Renew { shorten: true, .. }));
                prop_assert!(shorten || renewed.expires_at >= was, "{:?}", task);
            }
            for lease in service.rooms.iter().filter_map(|room| room.key.lease.as_ref()) {
                expiries.insert(lease.token, lease.expires_at);
            }
            Ok(())
        })?;
    }

    #[test]
    fn each_lease_ends_once_and_before_the_next_is_granted(steps in history()) {
        let service = live(&steps, |_, _, _| Ok(()))?;
        let mut open = BTreeMap::new();
        for event in events(&service) {
            match &event.change {
                Change::Granted(granted) => {
                    let before = open.insert(event.lease_key.clone(), granted.fencing_token);
                    prop_assert_eq!(before, None);
                }
                change => {
                    if let Some((_, ended)) = change.ended() {
                        prop_assert_eq!(open.remove(&event.lease_key), Some(ended.fencing_token));
                        prop_assert!(ended.ended_at <= event.at);
                    }
                }
            }
        }
    }

    #[test]
    fn events_come_in_the_order_of_time(steps in history()) {
        let service = live(&steps, |_, _, _| Ok(()))?;
        prop_assert!(events(&service).map(|event| event.at).is_sorted());
    }

    /// What settling finds is the same whether or not the command is then refused.
    #[test]
    fn a_refusal_changes_nothing_by_itself(steps in history()) {
        let mut before = Service::new().rooms;
        live(&steps, |service, task, decision| {
            if let (Task::One(index, _), Some(decision)) = (task, decision)
                && Service::is_refused(decision)
            {
                let changed = decision.settled.events.iter().filter(|event| !comes_due(&event.change));
                prop_assert_eq!(changed.count(), 0, "{:?}", decision);
                if decision.settled.events.is_empty() {
                    prop_assert_eq!(&service.rooms[*index].key, &before[*index].key);
                }
            }
            before.clone_from(&service.rooms);
            Ok(())
        })?;
    }

    /// An unsettled key shows what a settled one would, as long as nobody waits for it.
    #[test]
    fn swept_or_not_a_key_shows_the_same(steps in history(), later in 0..5_000_000_i64) {
        let mut service = live(&steps, |_, _, _| Ok(()))?;
        service.perform(&Task::Restart);
        service.now = service.now + domain::Span::from_micros(later);
        for index in 0..KEYS {
            let before = service.rooms[index].key.status(service.now);
            service.perform(&Task::One(index, Command::Settle));
            prop_assert_eq!(before, service.rooms[index].key.status(service.now));
        }
    }

    #[test]
    fn settling_twice_is_settling_once(steps in history()) {
        let mut service = live(&steps, |_, _, _| Ok(()))?;
        for index in 0..KEYS {
            service.perform(&Task::One(index, Command::Settle));
            let once = service.rooms[index].clone();
            let again = service.perform(&Task::One(index, Command::Settle)).unwrap();
            prop_assert_eq!(&service.rooms[index], &once);
            prop_assert!(again.settled.events.is_empty() && again.settled.woken.is_empty());
        }
    }

    /// The alarm of a key with waiters is neither late nor early.
    #[test]
    fn nothing_comes_of_a_key_with_waiters_before_its_alarm(steps in history()) {
        let mut service = live(&steps, |_, _, _| Ok(()))?;
        for index in 0..KEYS {
            service.perform(&Task::One(index, Command::Settle));
            let Some(alarm) = service.rooms[index].wakes_at() else { continue };
            prop_assert!(service.now < alarm);
            let back_to = service.now;
            service.now = Timestamp::from_micros(alarm.as_micros() - 1);
            let early = service.perform(&Task::One(index, Command::Settle)).unwrap();
            prop_assert!(early.settled.events.is_empty() && early.settled.woken.is_empty(), "{:?}", early);
            service.now = alarm;
            let on_time = service.perform(&Task::One(index, Command::Settle)).unwrap();
            prop_assert!(!on_time.settled.events.is_empty() || !on_time.settled.woken.is_empty());
            service.now = back_to;
        }
    }

    /// The same answer as often as it is asked, whoever has the key by now.
    #[test]
    fn a_release_is_repeatable(steps in history()) {
        let mut told: BTreeMap<_, (usize, Reply)> = BTreeMap::new();
        let mut service = live(&steps, |_, task, decision| {
            if let (Task::One(index, Command::Release { lease_id }), Some(decision)) = (task, decision)
                && let Answer::Done(reply @ Reply::Released { outcome: ReleaseOutcome::Released, .. }) = &decision.answer
            {
                let before = told.insert(*lease_id, (*index, reply.clone()));
                prop_assert!(before.is_none_or(|before| before.1 == *reply));
            }
            Ok(())
        })?;
        for (lease_id, (index, reply)) in told {
            let last = service.rooms[index].key.lease.as_ref().is_some_and(|lease| lease.id() == lease_id);
            if last || service.formers.contains_key(&lease_id) {
                let again = service.perform(&Task::One(index, Command::Release { lease_id })).unwrap();
                prop_assert_eq!(again.answer, Answer::Done(reply));
            }
        }
    }

    #[test]
    fn validate_knows_the_greatest_token_and_whether_it_is_held(steps in history(), later in 0..3_000_000_i64) {
        let mut service = live(&steps, |_, _, _| Ok(()))?;
        service.perform(&Task::Restart);
        service.now = service.now + domain::Span::from_micros(later);
        for (index, token) in service.grants.clone() {
            let decision = service.perform(&Task::One(index, Command::Validate { token })).unwrap();
            let greatest = service.grants.iter().filter(|(of, _)| *of == index).map(|(_, token)| *token).max();
            let state = &service.rooms[index].key;
            let held = state.lease.as_ref().is_some_and(|lease| lease.ended.is_none());
            let verdict = if Some(token) == greatest && held { Verdict::Current } else { Verdict::Stale };
            prop_assert_eq!(decision.answer, Answer::Done(Reply::Verdict { verdict, current_token: greatest }));
        }
    }

    /// Nothing is granted while a key cools or is quarantined, however it came to.
    #[test]
    fn grants_come_only_on_free_keys(steps in history()) {
        let mut before = Service::new().rooms;
        live(&steps, |service, task, decision| {
            if let (Task::One(index, Command::Acquire { .. }), Some(decision)) = (task, decision) {
                let was_free = before[*index].key.status(service.now) == KeyStatus::Free;
                let granted = matches!(decision.answer, Answer::Done(_));
                prop_assert!(was_free || !granted);
                prop_assert!(granted || !was_free || !before[*index].queue.is_empty());
            }
            before.clone_from(&service.rooms);
            Ok(())
        })?;
    }
}

/// Whether an event comes about by the clock or by a waiter's turn.
fn comes_due(change: &Change) -> bool {
    match change {
        Change::Granted(granted) => granted.origin == domain::lease::Origin::Waited,
        change => matches!(change.ended(), Some((Outcome::Expired | Outcome::Broken, _))),
    }
}
