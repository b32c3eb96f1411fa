//! When the service was away.

use domain::Span;
use domain::lease::{Command, Reply};

use crate::fixture::{Fixture, call, lease_key, refusal};

#[tokio::test]
async fn a_lease_that_was_alive_is_still_held_after_an_outage_for_the_grace() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.hands.pass(60_000).await;
    let renewed = fixture.renew(&lease).await.unwrap();
    assert!(renewed.lease.expires_at > lease.lease.expires_at);
    // And across a restart.
    fixture.engine.close().await;
    fixture.hands.pass(3_600_000).await;
    fixture.reopen().await;
    fixture.acquire("a", "two").await.unwrap_err();
    let kept = fixture.renew(&renewed).await.unwrap();
    assert_eq!(kept.lease.renewals, 2);
}

#[tokio::test]
async fn an_outage_gives_at_most_its_own_length_and_no_more_than_the_grace() {
    for (away, given) in [(2_500, 2_500), (60_000, 5_000)] {
        let fixture = Fixture::new().await;
        let lease = fixture.acquire("a", "one").await.unwrap();
        fixture.pass(9_900).await;
        fixture.hands.pass(away).await;
        let back = fixture.engine.now();
        let Reply::Key(key) = fixture.engine.run(call(), lease_key("a"), Command::Get).await.unwrap().value else {
            panic!()
        };
        // The last mark may be up to half a second older than the start of the silence.
        let until = key.state.lease.as_ref().unwrap().expires_at;
        let left = until.since(back).as_millis();
        assert!((given..=given + 600).contains(&left), "{left} after {away}");
        assert!(until > lease.lease.expires_at);
    }
}

#[tokio::test]
async fn what_had_ended_before_the_outage_stays_ended() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.pass(10_500).await;
    fixture.hands.pass(60_000).await;
    refusal(fixture.renew(&lease).await);
    fixture.acquire("a", "two").await.unwrap();
}

#[tokio::test]
async fn lists_are_read_through_an_outage_too() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    fixture.hands.pass(60_000).await;
    let listed = fixture.engine.list(crate::lists::all()).await.unwrap();
    let row = listed.page.rows.iter().find(|row| row.lease_key.as_str() == "a").unwrap();
    assert!(row.lease.is_alive(listed.server_time));
    assert!(row.lease.expires_at <= listed.server_time + Span::millis(5_000));
}

#[tokio::test]
async fn a_server_that_wrote_every_half_second_had_no_outage() {
    let fixture = Fixture::new().await;
    fixture.pass(60_000).await;
    let lines = fixture.lines().await;
    assert!(lines.iter().all(|line| !line.body.contains("service.outage")));
}
