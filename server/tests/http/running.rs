//! Starting, stopping, and what is told meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use server::serve::{Config, Server};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{ADMIN, Answer, Test, until};

#[expect(clippy::disallowed_methods, reason = "how long stopping takes is what is tested")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stops_within_ten_seconds_with_open_streams_and_waiters() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    let client = test.client();
    let held = client.take("k", "a").await;
    let mut streams = JoinSet::new();
    for _ in 0..20 {
        let mut response = client.request(Method::GET, "/api/v1/events").send().await.unwrap();
        streams.spawn(async move { while let Ok(Some(_)) = response.chunk().await {} });
    }
    let mut waiters = JoinSet::new();
    for n in 0..20 {
        let client = client.clone();
        waiters.spawn(async move {
            client.post("leases/acquire", json!({"lease_key": "k", "owner": n.to_string(), "wait_ms": 60_000})).await
        });
    }
    until("they wait", async || client.post("counters/get", json!({})).await.ok()["waiting"] == 20).await;
    let started = now();
    test.server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    for answer in waiters.join_all().await {
        answer.refused(503, "stopping");
    }
    timeout(Duration::from_secs(60), streams.join_all()).await.expect("the streams have ended");
    assert!(client.http.get(format!("{}/healthz", client.url)).send().await.is_err(), "nobody listens any more");
    // What was acknowledged is there.
    let again = Test::on(folder, |_| {}).await;
    let lease = again.client().post("leases/get", json!({"lease_key": "k"})).await.ok();
    assert_eq!(lease["lease"]["lease_id"], held["lease_id"]);
}

#[tokio::test]
async fn a_database_is_served_once() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let _test = Test::on(Arc::clone(&folder), |_| {}).await;
    let second = Server::start(Config::new(folder.path().join("test.db"))).await;
    let error = second.err().expect("a second server is refused").to_string();
    assert!(error.contains("served by another process"), "{error}");
}

#[tokio::test]
async fn the_first_start_lets_somebody_in_and_later_ones_change_nothing() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let test = Test::on(Arc::clone(&folder), |config| config.bootstrap_token = None).await;
    let file = folder.path().join("test.db-token");
    let token = std::fs::read_to_string(&file).unwrap();
    let client = test.client_with(token.trim());
    assert_eq!(client.post("sessions/current", json!({})).await.ok()["name"], "local");
    assert!(test.server.sign_in_link().is_some());
    test.server.stop().await;
    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    assert!(test.server.sign_in_link().is_none());
    // Nor does a token that is chosen later open a door.
    test.client_with(ADMIN).post("meta/get", json!({})).await.refused(401, "unauthenticated");
    test.client_with(token.trim()).post("meta/get", json!({})).await.ok();
    test.server.stop().await;
    let other = Arc::new(tempfile::tempdir().unwrap());
    let mut config = Config::new(other.path().join("x.db"));
    config.bootstrap_token = Some("jl_short".to_owned());
    assert!(Server::start(config).await.is_err(), "a token that can be guessed is refused");
}

#[tokio::test]
async fn every_response_carries_its_id_and_the_headers_that_keep_browsers_safe() {
    let test = Test::start().await;
    let client = test.client();
    for path in ["/api/v1/leases/list", "/api/v1/nothing", "/sign-in", "/", "/metrics", "/pkg/nothing.js"] {
        let request = client.request(Method::GET, path).header("X-Request-Id", "mine-1");
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.header("x-request-id"), Some("mine-1"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(answer.header("strict-transport-security"), None, "only where HTTPS is known");
    }
    let made = client.get("/api/v1/leases/list").await;
    assert!(made.header("x-request-id").unwrap().starts_with("rq-"));
    let bad = client.request(Method::GET, "/api/v1/leases/list").header("X-Request-Id", "a b\"c");
    let bad = Answer::of(bad.send().await.unwrap()).await;
    assert!(bad.header("x-request-id").unwrap().starts_with("rq-"));
    let https = Test::with(|config| config.public_url = Some("https://leases.example".to_owned())).await;
    let answer = https.client().get("/api/v1/leases/list").await;
    assert!(answer.header("strict-transport-security").is_some());
}

#[tokio::test]
async fn health_and_figures_are_told() {
    let test = Test::start().await;
    let client = test.client();
    assert_eq!(client.get("/healthz").await.ok(), json!({"status": "ok"}));
    assert_eq!(client.get("/readyz").await.ok(), json!({"status": "ready"}));
    let taken = client.take("k", "w").await;
    client.post("leases/renew", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    client.post("leases/acquire", json!({"lease_key": "k", "owner": "x"})).await.refused(409, "held");
    let answer = client.get("/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let figures = answer.ok();
    let figures = figures.as_str().unwrap();
    for line in [
        "job_leases_http_answers_total{route=\"/api/v1/leases/acquire\",status=\"200\"} 1",
        "job_leases_http_answers_total{route=\"/api/v1/leases/acquire\",status=\"409\"} 1",
        "job_leases_refusals_total{code=\"held\"} 1",
        "job_leases_renewal_margin_seconds_count 1",
        "# EOF",
    ] {
        assert!(figures.contains(line), "{line} is not in\n{figures}");
    }
    for name in [
        "batch_commands",
        "flush_seconds",
        "wait_seconds",
        "waiting_callers",
        "outages",
        "read_model_backlog",
        "event_streams",
    ] {
        assert!(figures.contains(&format!("job_leases_{name}")), "{name}");
    }
}

#[tokio::test]
async fn meta_tells_the_limits() {
    let test = Test::with(|config| config.rules.ttl_default = domain::Span::millis(7_000)).await;
    let meta = test.client().get("/api/v1/meta/get").await.ok();
    assert_eq!((&meta["limits"]["ttl_default_ms"], &meta["limits"]["wait_max_ms"]), (&json!(7_000), &json!(60_000)));
    assert_eq!(test.client().take("k", "w").await["ttl_remaining_ms"], 7_000);
}

#[tokio::test]
async fn a_first_token_that_was_revoked_is_refused_in_words_and_another_one_gets_in() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    // Whoever is left can do nothing about tokens.
    test.limited("admin", &["a/"]).await;
    let tokens = test.client().post("tokens/list", json!({})).await.ok();
    let first = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "bootstrap").unwrap();
    test.client().post("tokens/revoke", json!({"token_id": first["token_id"]})).await.ok();
    test.server.stop().await;

    let mut config = Config::new(folder.path().join("test.db"));
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.bootstrap_token = Some(ADMIN.to_owned());
    let Err(error) = Server::start(config).await else { panic!("it must not start") };
    assert!(format!("{error:#}").contains("was revoked or has expired"), "{error:#}");

    let another = "jl_another-secret-of-thirty-two-letters";
    let test = Test::on(folder, |config| config.bootstrap_token = Some(another.to_owned())).await;
    test.client_with(another).post("tokens/list", json!({})).await.ok();
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_told_and_when_to_try_again() {
    use sqlx::{ConnectOptions as _, Executor as _};
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    let client = test.client();
    let lease = client.take("k", "w").await;
    // Another process holds it.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("test.db"));
    let mut other = options.connect().await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    // Refused with Retry-After, which `refused` checks.
    let take = json!({"lease_key": "l", "owner": "w"});
    client.post("leases/acquire", take.clone()).await.refused(503, "unavailable");
    other.execute("ROLLBACK").await.unwrap();
    crate::support::until("it answers again", async || client.post("leases/acquire", take.clone()).await.status == 200)
        .await;
    client.post("leases/release", json!({"lease_key": "k", "lease_id": lease["lease_id"]})).await.ok();
}
