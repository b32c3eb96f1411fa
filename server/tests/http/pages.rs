//! Pages: behind signing in, each with a nonce of its own.

use reqwest::Method;
use serde_json::json;

use crate::support::{self, ADMIN, Answer, Client, Test};

async fn page(client: &Client, path: &str, cookie: Option<&str>) -> Answer {
    let mut request = client.request(Method::GET, path).header("Accept", "text/html");
    if let Some(cookie) = cookie {
        request = request.header("Cookie", cookie);
    }
    Answer::of(request.send().await.unwrap()).await
}

async fn cookie(test: &Test) -> String {
    let request = test.stranger().request(Method::POST, "/sign-in").header("Origin", &test.url);
    let response = support::form(request, &[("token", ADMIN)]).send().await.unwrap();
    response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn strangers_are_led_to_sign_in_and_back() {
    let test = Test::start().await;
    let answer = page(&test.stranger(), "/", None).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (303, Some("/sign-in")));
    let answer = page(&test.stranger(), "/?owner=a%20b&status=held", None).await;
    assert_eq!(answer.header("location"), Some("/sign-in?next=%2F%3Fowner%3Da%2520b%26status%3Dheld"));
    let form = page(&test.stranger(), answer.header("location").unwrap(), None).await;
    assert_eq!(form.status, 200);
    assert!(form.body.as_str().unwrap().contains("value=\"/?owner=a%20b&amp;status=held\""), "{}", form.body);
    // A session that has ended is a stranger.
    let answer = page(&test.stranger(), "/", Some("job_leases_session=gone")).await;
    assert_eq!(answer.status, 303);
}

#[tokio::test]
async fn the_first_page_comes_with_its_leases_and_a_strict_policy() {
    let test = Test::start().await;
    test.client().post("leases/acquire", json!({"lease_key": "nightly/<b>", "owner": "worker-1"})).await.ok();
    let cookie = cookie(&test).await;
    let mut nonces = Vec::new();
    for _ in 0..2 {
        let answer = page(&test.stranger(), "/", Some(&cookie)).await;
        assert_eq!(answer.status, 200);
        let policy = answer.header("content-security-policy").unwrap().to_owned();
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        for part in [
            "default-src 'none'",
            "'strict-dynamic'",
            "'wasm-unsafe-eval'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe-inline"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let html = answer.body.as_str().unwrap();
        assert!(html.contains("nightly/&lt;b&gt;") && html.contains("worker-1"), "the rows are in the document");
        assert!(!html.contains("<b>\""), "what callers named is escaped");
        for script in html.split("<script").skip(1) {
            assert!(script.split('>').next().unwrap().contains(&nonce), "every script carries the nonce");
        }
        assert!(!html.contains(" style="), "no inline style");
        nonces.push(nonce);
    }
    assert_ne!(nonces[0], nonces[1]);
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_a_page_for_readers_and_json_for_programs() {
    let test = Test::start().await;
    let cookie = cookie(&test).await;
    let answer = page(&test.stranger(), "/core/nowhere", Some(&cookie)).await;
    assert_eq!(answer.status, 404);
    assert!(answer.header("content-type").unwrap().starts_with("text/html"));
    let answer = page(&test.stranger(), "/api/v1/nowhere", Some(&cookie)).await;
    answer.refused(404, "not_found");
    assert_eq!(page(&test.stranger(), "/core/nowhere", None).await.status, 303);
}

#[tokio::test]
async fn a_page_is_compressed_for_those_who_can_read_it() {
    let test = Test::start().await;
    for n in 0..50 {
        test.client().post("leases/acquire", json!({"lease_key": format!("k{n}"), "owner": "worker-1"})).await.ok();
    }
    let cookie = cookie(&test).await;
    let request = test.stranger().request(Method::GET, "/").header("Accept", "text/html").header("Cookie", cookie);
    let plain = request.try_clone().unwrap().send().await.unwrap();
    assert_eq!(plain.headers().get("content-encoding"), None);
    let plain = plain.bytes().await.unwrap();
    let compressed = request.header("Accept-Encoding", "gzip, br").send().await.unwrap();
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    assert_eq!(compressed.headers()["vary"], "accept-encoding");
    let compressed = compressed.bytes().await.unwrap();
    assert_eq!(compressed[..2], [0x1f, 0x8b]);
    assert!(compressed.len() * 4 < plain.len(), "{} of {} bytes", compressed.len(), plain.len());
}
