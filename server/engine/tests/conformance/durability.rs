//! What is written, and what happens when it cannot be.

use std::time::Duration;

use domain::lease::{Command, LeaseReading};
use engine::Fault;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, call, delivered, lease_key, terms};

/// Takes the key `k<n>` in a task of its own.
fn take(fixture: &Fixture, n: usize) -> JoinHandle<Result<LeaseReading, Fault>> {
    let engine = fixture.engine.clone();
    tokio::spawn(async move {
        let command = Command::Acquire { request: terms("one"), wait: None };
        engine.run(call(), lease_key(&format!("k{n}")), command).await.map(delivered)
    })
}

#[tokio::test]
async fn commands_that_come_together_share_their_commits() {
    let fixture = Fixture::new().await;
    let tasks: Vec<_> = (0..500).map(|n| take(&fixture, n)).collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let mut registry = prometheus_client::registry::Registry::default();
    fixture.engine.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let commits: f64 =
        text.lines().find_map(|line| line.strip_prefix("flush_seconds_count ")).unwrap().parse().unwrap();
    assert!(commits < 250.0, "{commits} commits for 500 commands");
}

#[tokio::test]
async fn what_the_database_refuses_harms_none_of_those_committed_with_it() {
    let fixture = Fixture::new().await;
    fixture.database.refuse_poison().await;
    // Few, in one statement; and so many that a batch takes several.
    for (round, count) in [20, 200].into_iter().enumerate() {
        let take = |n| {
            let (fixture, poisoned) = (&fixture, n % 10 == 7);
            async move {
                let name = if poisoned { "poison" } else { "fine" };
                (poisoned, fixture.acquire(&format!("{name}/{round}/{n}"), "one").await)
            }
        };
        for (poisoned, answer) in futures::future::join_all((0..count).map(take)).await {
            if poisoned {
                assert!(matches!(answer, Err(Fault::Unavailable { .. })), "{answer:?}");
            } else {
                answer.unwrap();
            }
        }
    }
    let lines = fixture.lines().await;
    assert_eq!(lines.len(), 18 + 180);
    assert_eq!(lines.last().unwrap().position, fixture.engine.timeline().head());
    for pair in lines.windows(2) {
        assert_eq!(engine::timeline::chain(&pair[0].hash, pair[1].position, &pair[1].body), pair[1].hash);
    }
}

#[tokio::test]
async fn what_does_not_fit_before_the_door_is_refused_at_once_and_what_waits_there_is_done() {
    let fixture = Fixture::new().await;
    let held = fixture.database.hold().await;
    let mut tasks: Vec<JoinHandle<_>> = Vec::new();
    // The writer stands before the database that somebody else holds: its queue fills, however much fits.
    while tasks.iter().filter(|task| task.is_finished()).count() < 1_000 {
        assert!(tasks.len() < 50_000, "everything fits");
        tasks.extend((tasks.len()..tasks.len() + 500).map(|n| take(&fixture, n)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held.let_go().await;
    let mut done = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => done += 1,
            Err(fault) => assert!(matches!(fault, Fault::Overloaded { .. }), "{fault:?}"),
        }
    }
    assert!(done >= 4_096, "{done} that waited were done");
}
