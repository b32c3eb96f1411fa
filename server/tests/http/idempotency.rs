//! `Idempotency-Key`: once is once.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::Test;

#[tokio::test]
async fn the_same_request_again_changes_nothing_and_answers_the_same() {
    let test = Test::start().await;
    let client = test.client();
    let request = json!({"lease_key": "k", "owner": "w", "ttl_ms": 20_000});
    let first = client.keyed("key-1", "leases/acquire", request.clone()).await;
    assert_eq!(first.header("idempotency-replayed"), None);
    let first = first.ok();
    sleep(Duration::from_millis(20)).await;
    // White space and the order of fields make no other request of it.
    let http = client.request(reqwest::Method::POST, "/api/v1/leases/acquire").header("Idempotency-Key", "key-1");
    let text = " { \"ttl_ms\": 20000 ,\"owner\":\"w\", \"lease_key\" : \"k\" } ";
    let again = http.header("Content-Type", "application/json").body(text).send().await.unwrap();
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let again: Value = serde_json::from_str(&again.text().await.unwrap()).unwrap();
    assert_eq!((&again["lease_id"], &again["expires_at"]), (&first["lease_id"], &first["expires_at"]));
    assert!(again["ttl_remaining_ms"].as_u64() < first["ttl_remaining_ms"].as_u64(), "as it is now");

    let other = json!({"lease_key": "k", "owner": "w", "ttl_ms": 20_001});
    client.keyed("key-1", "leases/acquire", other).await.refused(422, "idempotency_mismatch");
    // Another operation is another request.
    let renew = json!({"lease_key": "k", "lease_id": first["lease_id"]});
    client.keyed("key-1", "leases/renew", renew.clone()).await.refused(422, "idempotency_mismatch");
    let renewed = client.keyed("key-2", "leases/renew", renew.clone()).await.ok();
    let again = client.keyed("key-2", "leases/renew", renew).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!((&again.body["renewals"], &renewed["renewals"]), (&json!(1), &json!(1)));
    let history = client.post("leases/history", json!({"lease_key": "k"})).await.ok();
    assert_eq!((history["items"].as_array().unwrap().len(), &history["items"][0]["renewals"]), (1, &json!(1)));
}

#[tokio::test]
async fn a_key_belongs_to_its_caller() {
    let test = Test::start().await;
    let other = test.limited("worker", &[]).await;
    test.client().keyed("same", "leases/acquire", json!({"lease_key": "a", "owner": "w"})).await.ok();
    let answer = other.keyed("same", "leases/acquire", json!({"lease_key": "b", "owner": "w"})).await;
    assert_eq!(answer.header("idempotency-replayed"), None);
    answer.ok();
}

#[tokio::test]
async fn a_replay_never_makes_a_dead_lease_look_alive() {
    let test = Test::start().await;
    let client = test.client();
    let request = json!({"lease_key": "k", "owner": "w", "ttl_ms": 100});
    client.keyed("a", "leases/acquire", request.clone()).await.ok();
    sleep(Duration::from_millis(150)).await;
    let replayed = client.keyed("a", "leases/acquire", request.clone()).await.refused(409, "lease_lost");
    assert_eq!(replayed["details"]["reason"], "expired");
    let next = client.take("k", "x").await;
    let replayed = client.keyed("a", "leases/acquire", request).await.refused(409, "lease_lost");
    assert_eq!(replayed["details"]["holder"], json!({"owner": "x", "since": next["acquired_at"]}));
}

#[tokio::test]
async fn a_refusal_is_not_kept() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client.take("k", "a").await;
    let request = json!({"lease_key": "k", "owner": "b"});
    client.keyed("a", "leases/acquire", request.clone()).await.refused(409, "held");
    client.post("leases/release", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    client.keyed("a", "leases/acquire", request).await.ok();
}

#[tokio::test]
async fn while_the_first_waits_the_second_is_told_so() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client.take("k", "a").await;
    let request = json!({"lease_key": "k", "owner": "b", "wait_ms": 30_000});
    let first = tokio::spawn({
        let (client, request) = (client.clone(), request.clone());
        async move { client.keyed("a", "leases/acquire", request).await }
    });
    crate::support::until("the first waits", async || {
        client.post("leases/get", json!({"lease_key": "k"})).await.ok()["queue_length"] == 1
    })
    .await;
    let error = client.keyed("a", "leases/acquire", request.clone()).await.refused(409, "idempotency_in_progress");
    assert!(error["details"]["retry_after_ms"].as_u64().unwrap() > 0);
    client.post("leases/release", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    let granted = first.await.unwrap().ok();
    let again = client.keyed("a", "leases/acquire", request).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok()["lease_id"], granted["lease_id"]);
}

#[tokio::test]
async fn every_change_takes_a_key_and_no_read_does() {
    let test = Test::start().await;
    let client = test.client();
    let many = json!({"owner": "w", "leases": [{"lease_key": "m/1"}, {"lease_key": "m/2"}]});
    let batch = json!({"operations": [{"acquire": {"lease_key": "b", "owner": "w"}}]});
    let token = json!({"name": "t", "role": "viewer"});
    let stop = json!({"lease_key": "q", "reason": "r"});
    for (n, (operation, request)) in [
        ("leases/acquire-many", many),
        ("leases/batch", batch),
        ("leases/quarantine", stop.clone()),
        ("leases/lift", stop),
        ("tokens/create", token),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("k-{n}");
        let first = client.keyed(&key, operation, request.clone()).await.ok();
        let again = client.keyed(&key, operation, request).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{operation}");
        let again = again.ok();
        match operation {
            "leases/acquire-many" => assert_eq!(again["leases"][1]["lease_id"], first["leases"][1]["lease_id"]),
            "leases/batch" => assert_eq!(again["results"][0]["ok"]["lease_id"], first["results"][0]["ok"]["lease_id"]),
            "tokens/create" => {
                assert_eq!(
                    (&again["token_id"], again.get("token")),
                    (&first["token_id"], None),
                    "the secret is shown once"
                );
            }
            _ => assert_eq!(again["status"], first["status"]),
        }
    }
    assert_eq!(client.post("tokens/list", json!({})).await.ok()["items"].as_array().unwrap().len(), 2);
    for _ in 0..2 {
        let read = client.keyed("r", "leases/list", json!({})).await;
        assert_eq!(read.header("idempotency-replayed"), None);
    }
    for bad in ["", "a b", &"k".repeat(256)] {
        let error = client.keyed(bad, "leases/acquire", json!({"lease_key": "z", "owner": "w"})).await;
        error.refused(422, "idempotency_key_invalid");
    }
    client.keyed(&"k".repeat(255), "leases/acquire", json!({"lease_key": "z", "owner": "w"})).await.ok();
}
