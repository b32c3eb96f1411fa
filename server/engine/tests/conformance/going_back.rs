//! Going back in time by PostgreSQL's own means: the database is as it was earlier, and those who come after know nothing of what
//! came between.

use domain::Span;
use engine::Engine;
use engine::timeline::Position;

use crate::fixture::{Fixture, hands, options};

#[tokio::test]
async fn tokens_go_on_above_all_others_leases_are_read_through_it_and_lost_events_are_told_apart() {
    let mut fixture = Fixture::new().await;
    let held = fixture.acquire("held", "one").await.unwrap();
    fixture.engine.close().await;
    let earlier = fixture.database.as_it_is().await;
    fixture.reopen().await;
    let mut last = held.lease.token;
    for n in 0..50 {
        last = fixture.acquire(&format!("lost/{n}"), "one").await.unwrap().lease.token.max(last);
    }
    let lost = fixture.lines().await;
    let common = &lost[0];
    let lost = &lost[20];
    let epoch = fixture.engine.timeline().epoch().to_owned();
    fixture.engine.close().await;

    let hands = hands(&earlier);
    hands.pass(7_000).await;
    let engine = Engine::open(options(&earlier, &hands)).await.unwrap();
    let back = Fixture { engine, hands, database: earlier };
    let renewed = back.renew(&held).await.unwrap();
    assert_eq!(renewed.lease.expires_at, back.now() + Span::millis(10_000));
    for n in 0..50 {
        let lease = back.acquire(&format!("anew/{n}"), "one").await.unwrap();
        assert!(lease.lease.token > last, "{} was given out before", lease.lease.token);
        last = lease.lease.token;
    }
    back.head().await;
    let timeline = back.engine.timeline();
    // An id is the epoch, the position and the hash there.
    assert_eq!(timeline.epoch(), epoch);
    assert_eq!(timeline.hash_at(common.position).await.unwrap(), Some(common.hash));
    assert!(timeline.head() > lost.position);
    assert_ne!(timeline.hash_at(lost.position).await.unwrap(), Some(lost.hash));
    assert_eq!(back.database.verify().await.unwrap().base, Position(0));
}
