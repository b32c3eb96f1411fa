//! Several nodes on one database: any takes any request, and together they keep what one alone keeps.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::lease::{Change, Command, KeyStatus, Outcome, Refusal, Reply, Wait};
use domain::{Owner, Reason, Role, Span};
use engine::engine::Scope;
use engine::reading::HistoryQuery;
use engine::timeline::{GENESIS, Line, Position, Record, chain};
use engine::{Call, Engine, Fault};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{sleep, timeout};

use crate::fixture::{Fixture, call, call_once, delivered, lease_key, refusal, terms};
use crate::lists::all;

/// Two nodes on one database.
pub(crate) async fn two_nodes() -> (Fixture, Fixture) {
    let here = Fixture::new().await;
    let there = here.another().await;
    (here, there)
}

/// What must not take long, for all that real time matters here.
pub(crate) async fn soon<T>(answer: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), answer).await.expect("an answer within ten seconds")
}

/// Until it is so.
async fn until(is_so: impl AsyncFn() -> bool) {
    soon(async {
        while !is_so().await {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(crate) fn take() -> Command {
    Command::Acquire { request: terms("one"), wait: None }
}

fn reason() -> Reason {
    Reason::parse("because").unwrap()
}

pub(crate) fn scope(role: Role) -> Scope {
    Scope { role, prefixes: Arc::from([]) }
}

/// How often this key was granted.
pub(crate) fn grants(lines: &[Line], key: &str) -> usize {
    let granted = lines.iter().filter(|line| match &*line.record {
        Record::Lease(event) => event.lease_key.as_str() == key && matches!(event.change, Change::Granted(_)),
        Record::Other(_) => false,
    });
    granted.count()
}

#[tokio::test]
async fn a_key_that_another_transaction_has_locked_is_waited_for() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.release(&lease).await.unwrap();
    let held = fixture.database.hold_key("a").await;
    let engine = fixture.engine.clone();
    let next = tokio::spawn(async move { engine.run(call(), lease_key("a"), take()).await.map(delivered) });
    // Others are not.
    fixture.acquire("b", "one").await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert!(!next.is_finished());
    held.let_go().await;
    soon(next).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_key_is_held_by_one_at_a_time_whichever_node_each_asks_and_its_tokens_rise() {
    let (here, there) = two_nodes().await;
    let (held, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let caller = |n: usize| {
        let engine = if n.is_multiple_of(2) { here.engine.clone() } else { there.engine.clone() };
        let (held, tokens) = (Arc::clone(&held), Arc::clone(&tokens));
        // Some wait for their turn, others try again and again.
        let (wait, rounds) = if n < 6 { (Some(Wait::lasting(Span::millis(60_000))), 10) } else { (None, 50) };
        tokio::spawn(async move {
            for _ in 0..rounds {
                let command = Command::Acquire { request: terms(&format!("w{n}")), wait };
                let lease = match engine.run(call(), lease_key("a"), command).await.map(delivered) {
                    Ok(lease) => lease,
                    Err(Fault::Refused(Refusal::Held(_))) => continue,
                    Err(fault) => panic!("{fault}"),
                };
                assert!(!held.swap(true, Ordering::SeqCst), "w{n} and another hold it");
                tokens.lock().unwrap().push(lease.lease.token);
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                let release = Command::Release { lease_id: lease.lease.id() };
                engine.run(call(), lease_key("a"), release).await.unwrap();
            }
        })
    };
    let callers: Vec<_> = (0..8).map(caller).collect();
    for caller in callers {
        timeout(Duration::from_secs(60), caller).await.unwrap().unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert!(tokens.len() >= 60, "{}", tokens.len());
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

#[tokio::test]
async fn tokens_rise_from_node_to_node() {
    let (here, there) = two_nodes().await;
    let mut all = HashSet::new();
    let mut last = 0;
    for n in 0..20 {
        let node = if n % 3 == 0 { &here } else { &there };
        let lease = node.acquire("a", "one").await.unwrap();
        assert!(lease.lease.token.get() > last);
        last = lease.lease.token.get();
        node.release(&lease).await.unwrap();
        // And no two are alike, of whatever keys.
        let other = node.acquire(&format!("k{n}"), "one").await.unwrap();
        assert!(all.insert(last) && all.insert(other.lease.token.get()));
    }
}

#[tokio::test]
async fn what_one_node_granted_any_other_knows_renews_and_takes_back() {
    let (here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    let Refusal::Held(busy) = refusal(there.acquire("a", "two").await) else { panic!() };
    assert_eq!((busy.owner.as_str(), busy.expires_at), ("one", lease.lease.expires_at));
    let renewed = there.renew(&lease).await.unwrap();
    let Reply::Key(key) = here.run("a", Command::Get).await else { panic!() };
    assert_eq!(key.state.lease, Some(renewed.lease));
    there.release(&lease).await.unwrap();
    assert!(matches!(here.renew(&lease).await, Err(Fault::Refused(Refusal::LeaseLost { .. }))));
    here.acquire("a", "two").await.unwrap();
}

#[tokio::test]
async fn who_waits_at_one_node_is_granted_by_a_release_at_another() {
    let (here, there) = two_nodes().await;
    let holder = here.acquire("a", "one").await.unwrap();
    let waiter = there.wait("a", "two", 60_000);
    here.until_waiting("a", 1).await;
    here.release(&holder).await.unwrap();
    let lease = soon(waiter).await.unwrap().unwrap();
    assert_eq!(lease.lease.owner.as_str(), "two");
    there.renew(&lease).await.unwrap();
    assert_eq!(here.queue_length("a").await, 0);
}

#[tokio::test]
async fn who_waits_is_granted_when_the_lease_of_another_node_expires() {
    let (here, there) = two_nodes().await;
    here.acquire("a", "one").await.unwrap();
    let waiter = there.wait("a", "two", 60_000);
    here.until_waiting("a", 1).await;
    there.pass(10_000).await;
    assert_eq!(soon(waiter).await.unwrap().unwrap().lease.owner.as_str(), "two");
}

#[tokio::test]
async fn waiters_are_served_in_the_order_in_which_they_came_to_whichever_node() {
    let (here, there) = two_nodes().await;
    let nodes = [&here, &there];
    let mut holder = here.acquire("a", "first").await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..40 {
        waiters.push(nodes[n / 2 % 2].wait("a", &format!("w{n}"), 60_000));
        nodes[n % 2].until_waiting("a", n + 1).await;
    }
    for (n, waiter) in waiters.into_iter().enumerate() {
        assert!(!waiter.is_finished());
        nodes[n / 3 % 2].release(&holder).await.unwrap();
        let next = soon(waiter).await.unwrap().unwrap();
        assert_eq!(next.lease.owner.as_str(), format!("w{n}"));
        assert!(next.lease.token > holder.lease.token);
        holder = next;
    }
}

#[tokio::test]
async fn who_hung_up_at_one_node_is_passed_over_at_another() {
    let (here, there) = two_nodes().await;
    let holder = here.acquire("a", "one").await.unwrap();
    let gone = there.wait("a", "gone", 60_000);
    here.until_waiting("a", 1).await;
    let next = here.wait("a", "next", 60_000);
    here.until_waiting("a", 2).await;
    gone.abort();
    here.until_waiting("a", 1).await;
    here.release(&holder).await.unwrap();
    let next = soon(next).await.unwrap().unwrap();
    assert_eq!(next.lease.owner.as_str(), "next");
    assert_eq!(grants(&here.lines().await, "a"), 2);
    // Before its node has said so: its grant, if there was one, is ended at once.
    let gone = there.wait("a", "gone", 60_000);
    here.until_waiting("a", 1).await;
    let after = here.wait("a", "after", 60_000);
    here.until_waiting("a", 2).await;
    gone.abort();
    here.release(&next).await.unwrap();
    assert_eq!(soon(after).await.unwrap().unwrap().lease.owner.as_str(), "after");
}

#[tokio::test]
async fn a_token_made_at_one_node_is_good_at_all_at_once_and_one_revoked_at_none() {
    let (here, there) = two_nodes().await;
    for (one, other) in [(&here, &there), (&there, &here)] {
        let made = one.engine.create_token(call(), "worker", scope(Role::Worker), None).await.unwrap().value;
        let secret = made.secret.unwrap();
        let known = other.engine.authenticate(&secret).await.unwrap().unwrap();
        assert_eq!((known.role, &*known.actor.id), (Role::Worker, &*made.token.token_id));
        one.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
        // What would change anything is refused at once, all else within about a second.
        let caller = Call { actor: Arc::clone(&known.actor), ..call() };
        let answer = other.engine.run(caller, lease_key("a"), take()).await.map(|done| done.value);
        assert_eq!(answer, Err(Fault::NotGoodAnyMore));
        until(async || other.engine.authenticate(&secret).await.unwrap().is_none()).await;
        let again = other.engine.revoke_token(call(), &made.token.token_id).await;
        assert_eq!(again.unwrap_err(), Fault::NotFound("token"));
    }
}

#[tokio::test]
async fn who_waits_with_a_token_that_is_revoked_at_another_node_is_granted_nothing() {
    let (here, there) = two_nodes().await;
    let made = here.engine.create_token(call(), "worker", scope(Role::Worker), None).await.unwrap().value;
    let known = there.engine.authenticate(&made.secret.unwrap()).await.unwrap().unwrap();
    let holder = here.acquire("a", "one").await.unwrap();
    let caller = Call { actor: Arc::clone(&known.actor), ..call() };
    let waiter = there.wait_as(caller, "a", terms("two"), 60_000);
    here.until_waiting("a", 1).await;
    here.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
    here.release(&holder).await.unwrap();
    assert_eq!(soon(waiter).await.unwrap(), Err(Fault::NotGoodAnyMore));
    here.acquire("a", "three").await.unwrap();
    assert_eq!(grants(&here.lines().await, "a"), 2);
}

#[tokio::test]
async fn a_sign_in_link_is_good_once_whichever_nodes_it_is_used_at() {
    let (here, there) = two_nodes().await;
    for _ in 0..5 {
        let link = here.engine.create_sign_in_link(call()).await.unwrap();
        let both =
            tokio::join!(here.engine.sign_in_by_link(call(), &link), there.engine.sign_in_by_link(call(), &link));
        let (session, node, other) = match both {
            (Ok(session), Err(Fault::NotFound("sign-in link"))) => (session, &here, &there),
            (Err(Fault::NotFound("sign-in link")), Ok(session)) => (session, &there, &here),
            both => panic!("{both:?}"),
        };
        let known = other.engine.authenticate(&session.secret).await.unwrap().unwrap();
        assert_eq!(known.role, Role::Admin);
        other.engine.sign_out(call(), &known.actor.id).await.unwrap();
        until(async || node.engine.authenticate(&session.secret).await.unwrap().is_none()).await;
    }
}

#[tokio::test]
async fn the_same_request_at_another_node_has_the_same_answer_and_no_second_effect() {
    let (here, there) = two_nodes().await;
    let first = here.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    let again = there.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.value, first.value);
    let other = there.engine.run(call_once("k", 2), lease_key("b"), take()).await;
    assert_eq!(other.unwrap_err(), Fault::IdempotencyMismatch);
    let made = here.engine.create_token(call_once("t", 1), "w", scope(Role::Worker), None).await.unwrap();
    let again = there.engine.create_token(call_once("t", 1), "w", scope(Role::Worker), None).await.unwrap();
    assert!(again.replayed && again.value.secret.is_none());
    assert_eq!(again.value.token, made.value.token);
    let lines = here.lines().await;
    assert_eq!((grants(&lines, "a"), grants(&lines, "b"), lines.len()), (1, 0, 2));
}

#[tokio::test]
async fn an_idempotency_key_has_one_effect_though_all_nodes_are_asked_at_once() {
    let (here, there) = two_nodes().await;
    for n in 0..20 {
        let (id, key) = (format!("same{n}"), lease_key(&format!("same{n}")));
        let (one, other) = tokio::join!(
            here.engine.run(call_once(&id, 1), key.clone(), take()),
            there.engine.run(call_once(&id, 1), key, take())
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.value, other.value);
        assert_ne!(one.replayed, other.replayed, "{n}");
        // And with different requests: one is done, and the other is told that it is another.
        let (id, key, second) = (format!("other{n}"), format!("first{n}"), format!("second{n}"));
        let (one, other) = tokio::join!(
            here.engine.run(call_once(&id, 1), lease_key(&key), take()),
            there.engine.run(call_once(&id, 2), lease_key(&second), take())
        );
        let (done, refused) = match (one, other) {
            (Ok(_), Err(fault)) => ((key, second), fault),
            (Err(fault), Ok(_)) => ((second, key), fault),
            both => panic!("{both:?}"),
        };
        assert_eq!(refused, Fault::IdempotencyMismatch);
        let lines = here.lines().await;
        assert_eq!((grants(&lines, &done.0), grants(&lines, &done.1)), (1, 0));
        assert_eq!(grants(&lines, &format!("same{n}")), 1);
    }
}

#[tokio::test]
async fn the_original_is_in_progress_at_all_nodes_while_it_waits_at_one() {
    let (here, there) = two_nodes().await;
    let holder = here.acquire("a", "two").await.unwrap();
    let waiter = here.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    there.until_waiting("a", 1).await;
    let meanwhile = soon(there.wait_as(call_once("k", 1), "a", terms("one"), 60_000)).await.unwrap();
    assert_eq!(meanwhile, Err(Fault::IdempotencyInProgress));
    let other = soon(there.wait_as(call_once("k", 2), "a", terms("one"), 60_000)).await.unwrap();
    assert_eq!(other, Err(Fault::IdempotencyMismatch));
    waiter.abort();
    there.until_waiting("a", 0).await;
    let again = there.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    there.until_waiting("a", 1).await;
    here.release(&holder).await.unwrap();
    let granted = soon(again).await.unwrap().unwrap();
    let replayed = here.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(replayed.replayed);
    assert_eq!(replayed.value, Reply::Lease(granted));
}

#[tokio::test]
async fn a_grant_under_an_idempotency_key_is_kept_for_whichever_node_is_asked_again() {
    let (here, there) = two_nodes().await;
    let holder = here.acquire("a", "two").await.unwrap();
    let waiter = there.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    here.until_waiting("a", 1).await;
    here.release(&holder).await.unwrap();
    // Its answer is lost on the way.
    waiter.abort();
    let again = here.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(again.replayed);
    assert!(matches!(refusal(there.acquire("a", "three").await), Refusal::Held(_)));
}

#[tokio::test]
async fn operators_break_quarantine_and_hand_over_at_any_node() {
    let (here, there) = two_nodes().await;
    // With a grace, of which the holder hears when it renews; then at once.
    let lease = here.acquire("a", "one").await.unwrap();
    there.run("a", Command::Break { reason: reason(), grace: Span::millis(5_000), lease_id: None }).await;
    let renewed = here.renew(&lease).await.unwrap();
    assert!(renewed.lease.breaking.is_some());
    there.run("a", Command::Break { reason: reason(), grace: Span::ZERO, lease_id: Some(lease.lease.id()) }).await;
    let lost = refusal(here.renew(&lease).await);
    assert_eq!(lost, Refusal::LeaseLost { reason: Outcome::Broken, holder: None });

    let lease = here.acquire("b", "one").await.unwrap();
    let waiter = here.wait("b", "two", 60_000);
    there.until_waiting("b", 1).await;
    there.run("b", Command::Quarantine { reason: reason() }).await;
    assert!(matches!(refusal(soon(waiter).await.unwrap()), Refusal::Quarantined(_)));
    here.renew(&lease).await.unwrap();
    here.release(&lease).await.unwrap();
    assert!(matches!(refusal(here.acquire("b", "two").await), Refusal::Quarantined(_)));
    there.run("b", Command::Lift { reason: reason() }).await;
    here.acquire("b", "two").await.unwrap();

    let lease = here.acquire("c", "one").await.unwrap();
    let transfer = Command::Transfer { lease_id: lease.lease.id(), to_owner: Owner::parse("two").unwrap() };
    let Reply::Lease(handed) = there.run("c", transfer).await else { panic!() };
    let Refusal::LeaseLost { reason: Outcome::Transferred, holder: Some((owner, _)) } =
        refusal(here.renew(&lease).await)
    else {
        panic!()
    };
    assert_eq!(owner.as_str(), "two");
    here.renew(&handed).await.unwrap();
}

#[tokio::test]
async fn who_attends_to_a_lease_at_one_node_hears_of_its_end_at_another() {
    let (here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    let attending = {
        let (engine, id) = (there.engine.clone(), lease.lease.id());
        tokio::spawn(async move { engine.attend(call(), lease_key("a"), id, Span::millis(60_000)).await })
    };
    // So that it attends by then.
    sleep(Duration::from_millis(200)).await;
    here.run("a", Command::Break { reason: reason(), grace: Span::ZERO, lease_id: None }).await;
    // Else it would hear of it when the lease would have expired, ten seconds later.
    let told = timeout(Duration::from_secs(5), attending).await.unwrap().unwrap().unwrap();
    let Reply::Key(key) = told.value else { panic!() };
    assert_eq!(key.state.lease.unwrap().ended.unwrap().outcome, Outcome::Broken);
}

#[tokio::test]
async fn acquire_many_at_all_nodes_takes_all_or_none_and_nobody_stands_in_anothers_way_for_ever() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let (here, there) = two_nodes().await;
    let held: Arc<HashMap<&str, AtomicBool>> = Arc::new(KEYS.map(|key| (key, AtomicBool::new(false))).into());
    let caller = |n: u64| {
        let engine = if n.is_multiple_of(2) { here.engine.clone() } else { there.engine.clone() };
        let held = Arc::clone(&held);
        tokio::spawn(async move {
            let mut chance = StdRng::seed_from_u64(n);
            let mut granted = 0;
            for _ in 0..25 {
                // In any order, so that there would be a deadlock if they were locked as they are named.
                let mut keys = KEYS;
                keys.shuffle(&mut chance);
                let wanted = &keys[..chance.random_range(2..=4)];
                let requests = wanted.iter().map(|key| (lease_key(key), terms(&format!("w{n}")))).collect();
                let done = match engine.acquire_many(call(), requests).await {
                    Ok(done) => done,
                    Err(Fault::Refused(Refusal::KeysBusy(_))) => continue,
                    Err(fault) => panic!("{fault}"),
                };
                done.delivery.unwrap().delivered();
                let Reply::Leases(leases) = done.value else { panic!() };
                assert_eq!(leases.len(), wanted.len());
                for key in wanted {
                    assert!(!held[key].swap(true, Ordering::SeqCst), "w{n} and another hold {key}");
                }
                tokio::task::yield_now().await;
                for lease in leases {
                    held[lease.lease_key.as_str()].store(false, Ordering::SeqCst);
                    let release = Command::Release { lease_id: lease.lease.id() };
                    engine.run(call(), lease.lease_key, release).await.unwrap();
                }
                granted += wanted.len();
            }
            granted
        })
    };
    let callers: Vec<_> = (0..8).map(caller).collect();
    let mut granted = 0;
    for caller in callers {
        granted += timeout(Duration::from_secs(60), caller).await.unwrap().unwrap();
    }
    assert!(granted > 0);
    let lines = here.lines().await;
    // Nothing was granted of what was refused, and nothing is left.
    assert_eq!(KEYS.iter().map(|key| grants(&lines, key)).sum::<usize>(), granted);
    for key in KEYS.into_iter().filter(|key| grants(&lines, key) > 0) {
        let Reply::Key(reading) = there.run(key, Command::Get).await else { panic!() };
        assert_eq!(reading.state.status(there.now()), KeyStatus::Free, "{key}");
    }
}

#[tokio::test]
async fn streams_at_all_nodes_have_the_same_lines_dense_and_chained_while_all_write() {
    const ROUNDS: usize = 30;
    let (here, there) = two_nodes().await;
    let follow = |engine: Engine| {
        tokio::spawn(async move {
            let mut head = engine.timeline().subscribe();
            let mut lines: Vec<Line> = Vec::new();
            // Each round of each writer is a grant and a release.
            while lines.len() < 8 * ROUNDS * 2 {
                let after = lines.last().map_or(Position(0), |line| line.position);
                let more = engine.timeline().read_after(after, 11).await.unwrap();
                if more.is_empty() {
                    head.changed().await.unwrap();
                }
                lines.extend(more);
            }
            lines
        })
    };
    let followers = [follow(here.engine.clone()), follow(there.engine.clone())];
    let write = |n: usize| {
        let engine = if n.is_multiple_of(2) { here.engine.clone() } else { there.engine.clone() };
        tokio::spawn(async move {
            let key = lease_key(&format!("k{n}"));
            for _ in 0..ROUNDS {
                let lease = delivered(engine.run(call(), key.clone(), take()).await.unwrap());
                let release = Command::Release { lease_id: lease.lease.id() };
                engine.run(call(), key.clone(), release).await.unwrap();
            }
        })
    };
    let writers: Vec<_> = (0..8).map(write).collect();
    for writer in writers {
        timeout(Duration::from_secs(60), writer).await.unwrap().unwrap();
    }
    let mut seen = Vec::new();
    for follower in followers {
        seen.push(soon(follower).await.unwrap());
    }
    // And as it is read afterwards.
    seen.push(there.lines().await);
    for lines in &seen {
        let mut hash = GENESIS;
        assert_eq!(lines.len(), 8 * ROUNDS * 2);
        for (index, line) in lines.iter().enumerate() {
            assert_eq!(line.position.0, i64::try_from(index).unwrap() + 1);
            hash = chain(&hash, line.position, &line.body);
            assert_eq!(line.hash, hash);
            assert_eq!(line.body, seen[0][index].body);
        }
    }
}

#[tokio::test]
async fn a_list_at_one_node_has_all_that_was_committed_at_another_when_it_was_asked_for() {
    let (here, there) = two_nodes().await;
    for n in 0..20 {
        let (one, other) = if n % 2 == 0 { (&here, &there) } else { (&there, &here) };
        one.acquire(&format!("k{n}"), "one").await.unwrap();
        assert_eq!(other.engine.list(all()).await.unwrap().page.rows.len(), n + 1);
        let history = HistoryQuery { lease_key: lease_key(&format!("k{n}")), before: None, limit: 5 };
        assert_eq!(other.engine.history(history).await.unwrap().page.rows.len(), 1);
    }
}

#[tokio::test]
async fn refusals_at_all_nodes_are_counted_together() {
    let (here, there) = two_nodes().await;
    here.acquire("a", "one").await.unwrap();
    for _ in 0..5 {
        refusal(here.acquire("a", "two").await);
        refusal(there.acquire("a", "two").await);
    }
    until(async || here.engine.counters(&[]).await.unwrap().collisions == 10).await;
    until(async || there.engine.counters(&[]).await.unwrap().collisions == 10).await;
}
