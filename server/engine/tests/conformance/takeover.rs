//! Another database server takes over, whose clock is another: server time goes on as it did.

use domain::Timestamp;
use domain::lease::{Command, Reply};

use crate::fixture::{Fixture, call, lease_key};
use crate::nodes::two_nodes;

/// What nodes may know of the time too late, and so may be off by, in milliseconds.
const SLACK: i64 = 10;

/// How much time this node says is left of the lease on a key, in milliseconds.
async fn left(node: &Fixture, key: &str) -> i64 {
    let done = node.engine.run(call(), lease_key(key), Command::Get).await.unwrap();
    let Reply::Key(reading) = done.value else { panic!() };
    let lease = reading.state.lease.expect("somebody had it");
    lease.expires_at.since(done.server_time).as_millis()
}

#[tokio::test]
async fn no_lease_is_cut_short_or_prolonged_by_a_clock_that_is_off_and_all_nodes_agree() {
    for off in [500, -500, 3_600_000, -3_600_000] {
        let (here, there) = two_nodes().await;
        here.acquire("a", "one").await.unwrap();
        here.pass(1_000).await;
        here.database.take_over(off).await;
        // It was not there before, so that it knows nothing of the time.
        let late = here.another().await;
        for node in [&late, &there, &here] {
            let left = left(node, "a").await;
            assert!((9_000 - SLACK..=9_000).contains(&left), "{off}: {left}");
        }
        late.acquire("b", "one").await.unwrap();
        here.pass(4_000).await;
        for (key, expected) in [("a", 5_000), ("b", 6_000)] {
            for node in [&here, &late, &there] {
                let left = left(node, key).await;
                assert!((expected - SLACK..=expected + SLACK).contains(&left), "{off}: {left} of {key}");
            }
        }
    }
}

#[tokio::test]
async fn where_nobody_lived_through_it_server_time_does_not_go_back() {
    let mut fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let before: Timestamp = fixture.engine.now();
    fixture.engine.close().await;
    fixture.database.take_over(-3_600_000).await;
    fixture.engine = engine::Engine::open(fixture.options()).await.unwrap();
    assert!(fixture.engine.now() >= before);
    let left = left(&fixture, "a").await;
    assert!((10_000 - SLACK..=10_000).contains(&left), "{left}");
}
