//! What is written, and what happens when it cannot be.

use engine::Fault;
use engine::timeline::Position;
use sqlx::ConnectOptions as _;

use crate::fixture::Fixture;

#[tokio::test]
async fn commands_that_come_together_share_their_commits() {
    let fixture = Fixture::new().await;
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let engine = fixture.engine.clone();
            let command = domain::lease::Command::Acquire { request: crate::fixture::terms("one"), wait: None };
            tokio::spawn(async move {
                let key = crate::fixture::lease_key(&format!("k{n}"));
                engine.run(crate::fixture::call(), key, command).await.map(crate::fixture::delivered)
            })
        })
        .collect();
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
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.path()).connect().await.unwrap();
    let refuse = "CREATE TRIGGER poison BEFORE INSERT ON timeline WHEN new.body LIKE '%poison%' \
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END";
    sqlx::query(refuse).execute(&mut other).await.unwrap();
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
    let timeline = fixture.engine.timeline();
    let lines = timeline.read_after(Position(0), 1_000).await.unwrap();
    assert_eq!(lines.len(), 18 + 180);
    assert_eq!(lines.last().unwrap().position, timeline.head());
    for pair in lines.windows(2) {
        assert_eq!(engine::timeline::chain(&pair[0].hash, pair[1].position, &pair[1].body), pair[1].hash);
    }
}

#[tokio::test]
async fn what_does_not_fit_before_the_door_is_refused_at_once_and_what_waits_there_is_done() {
    let fixture = Fixture::new().await;
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.path()).connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let take = |n| {
        let engine = fixture.engine.clone();
        let command = domain::lease::Command::Acquire { request: crate::fixture::terms("one"), wait: None };
        tokio::spawn(async move {
            let key = crate::fixture::lease_key(&format!("k{n}"));
            engine.run(crate::fixture::call(), key, command).await.map(crate::fixture::delivered)
        })
    };
    let tasks: Vec<_> = (0..6_000).map(take).collect();
    // The writer stands before the database that another process holds: its queue fills.
    while tasks.iter().filter(|task| task.is_finished()).count() < 1_000 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    let mut done = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => done += 1,
            Err(fault) => assert!(matches!(fault, Fault::Overloaded { .. }), "{fault:?}"),
        }
    }
    assert!(done >= 4_096, "{done} that waited were done");
}
