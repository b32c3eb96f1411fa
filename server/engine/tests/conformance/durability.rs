//! What is written, and what happens when it cannot be.

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
