//! Callers who wait, and callers who hang up.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{ADMIN, Client, Test, until};

async fn queue_length(client: &Client, key: &str) -> u64 {
    client.post("leases/get", json!({"lease_key": key})).await.ok()["queue_length"].as_u64().unwrap()
}

/// A request as bytes, for callers who do not behave.
fn bytes(operation: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST /api/v1/{operation} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_waiters_are_served_in_the_order_they_came() {
    let test = Test::start().await;
    let client = test.client();
    let mut held = client.take("k", "first").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for n in 0..200_u64 {
        let (waiter, order) = (client.clone(), Arc::clone(&order));
        waiters.spawn(async move {
            let request = json!({"lease_key": "k", "owner": format!("w{n}"), "wait_ms": 60_000});
            let lease = waiter.post("leases/acquire", request).await.ok();
            order.lock().await.push(n);
            let names = json!({"lease_key": "k", "lease_id": lease["lease_id"]});
            waiter.post("leases/release", names).await.ok();
            lease["fencing_token"].as_u64().unwrap()
        });
        until("it waits", async || queue_length(&client, "k").await == n + 1).await;
    }
    assert_eq!(client.post("counters/get", json!({})).await.ok()["waiting"], 200);
    let error = client.post("leases/acquire", json!({"lease_key": "k", "owner": "late"})).await.refused(409, "held");
    assert_eq!(error["details"]["queue_length"], 200);
    held = client.post("leases/release", json!({"lease_key": "k", "lease_id": held["lease_id"]})).await.ok();
    let mut tokens = waiters.join_all().await;
    assert_eq!(*order.lock().await, (0..200).collect::<Vec<_>>());
    tokens.push(held["fencing_token"].as_u64().unwrap());
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 201, "each grant has a token of its own");
}

#[tokio::test]
async fn a_wait_that_is_over_tells_who_has_the_key() {
    let test = Test::start().await;
    let client = test.client();
    let held = client.take("k", "a").await;
    let request = json!({"lease_key": "k", "owner": "b", "wait_ms": 100});
    let error = client.post("leases/acquire", request).await.refused(409, "wait_timeout");
    assert_eq!((&error["details"]["owner"], &error["details"]["since"]), (&json!("a"), &held["acquired_at"]));
    assert_eq!(queue_length(&client, "k").await, 0);
}

#[tokio::test]
async fn a_waiter_is_served_at_expiry_and_told_of_a_quarantine() {
    let test = Test::start().await;
    let client = test.client();
    client.post("leases/acquire", json!({"lease_key": "k", "owner": "a", "ttl_ms": 300})).await.ok();
    let waited = client.post("leases/acquire", json!({"lease_key": "k", "owner": "b", "wait_ms": 20_000})).await.ok();
    assert_eq!(waited["owner"], "b");
    let waiter = tokio::spawn({
        let client = client.clone();
        async move { client.post("leases/acquire", json!({"lease_key": "k", "owner": "c", "wait_ms": 30_000})).await }
    });
    until("it waits", async || queue_length(&client, "k").await == 1).await;
    client.post("leases/quarantine", json!({"lease_key": "k", "reason": "r"})).await.ok();
    waiter.await.unwrap().refused(409, "quarantined");
}

#[tokio::test]
async fn only_so_many_wait_for_one_key() {
    let test = Test::with(|config| config.rules.waiters_per_key = 2).await;
    let client = test.client();
    client.take("k", "a").await;
    let mut waiters = JoinSet::new();
    for n in 0..2 {
        let client = client.clone();
        waiters.spawn(async move {
            client.post("leases/acquire", json!({"lease_key": "k", "owner": n.to_string(), "wait_ms": 30_000})).await
        });
    }
    until("both wait", async || queue_length(&client, "k").await == 2).await;
    client
        .post("leases/acquire", json!({"lease_key": "k", "owner": "c", "wait_ms": 30_000}))
        .await
        .refused(429, "queue_full");
}

#[tokio::test]
async fn a_waiter_that_hangs_up_leaves_the_queue_and_is_granted_nothing() {
    let test = Test::start().await;
    let client = test.client();
    let held = client.take("k", "a").await;
    let mut gone = Vec::new();
    for n in 0..20 {
        let mut stream = TcpStream::connect(test.server.address()).await.unwrap();
        let request = json!({"lease_key": "k", "owner": format!("gone-{n}"), "wait_ms": 60_000});
        stream.write_all(&bytes("leases/acquire", &request)).await.unwrap();
        gone.push(stream);
    }
    until("they wait", async || queue_length(&client, "k").await == 20).await;
    let last = tokio::spawn({
        let client = client.clone();
        async move { client.post("leases/acquire", json!({"lease_key": "k", "owner": "there", "wait_ms": 60_000})).await }
    });
    until("the last waits too", async || queue_length(&client, "k").await == 21).await;
    drop(gone);
    until("those who are gone have left", async || queue_length(&client, "k").await == 1).await;
    client.post("leases/release", json!({"lease_key": "k", "lease_id": held["lease_id"]})).await.ok();
    let granted = timeout(Duration::from_secs(60), last).await.unwrap().unwrap().ok();
    assert_eq!(granted["owner"], "there");
    let history = client.post("leases/history", json!({"lease_key": "k"})).await.ok();
    let owners: Vec<_> = history["items"].as_array().unwrap().iter().map(|lease| &lease["owner"]).collect();
    assert_eq!(owners, ["there", "a"], "nobody who was gone was granted it");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_callers_that_hang_up_mid_request_leave_it_healthy() {
    let test = Test::start().await;
    let client = test.client();
    client.take("busy", "a").await;
    let mut callers = JoinSet::new();
    for n in 0..500_usize {
        let address = test.server.address();
        callers.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = match n % 3 {
                0 => json!({"lease_key": format!("k{n}"), "owner": "w", "ttl_ms": 1_000}),
                1 => json!({"lease_key": "busy", "owner": format!("w{n}"), "wait_ms": 60_000}),
                _ => json!({"lease_key": format!("k{n}"), "owner": "w", "ttl_ms": 1_000, "wait_ms": 1_000}),
            };
            let bytes = bytes("leases/acquire", &request);
            // At every place of the request, its very end among them.
            let sent = if n % 7 == 0 { bytes.len() } else { n * bytes.len() / 500 };
            stream.write_all(&bytes[..sent]).await.unwrap();
            if n % 2 == 0 {
                // Without a word of farewell.
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        });
    }
    callers.join_all().await;
    until("nobody waits any more", async || client.post("counters/get", json!({})).await.ok()["waiting"] == 0).await;
    assert_eq!(queue_length(&client, "busy").await, 0);
    assert_eq!(client.get("/readyz").await.ok()["status"], "ready");
    sleep(Duration::from_millis(1_100)).await;
    for n in 0..500 {
        // Nothing of theirs is in the way for longer than they asked.
        client.take(&format!("k{n}"), "next").await;
    }
    until("no request is left", async || {
        let figures = client.get("/metrics").await.ok();
        // This one itself.
        figures.as_str().unwrap().contains("job_leases_http_requests_under_way 1\n")
    })
    .await;
}

/// A caller that asks for so many long and short answers and then for a lease, and reads none of them.
async fn pipeline(test: &Test, long: usize, short: usize, key: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(test.server.address()).await.unwrap();
    let mut all = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(long);
    all.extend(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".repeat(short));
    all.extend(bytes("leases/acquire", &json!({"lease_key": key, "owner": "w", "ttl_ms": 3_600_000})));
    // The server stops reading once it cannot write, so this may not get through.
    let _ = timeout(Duration::from_secs(2), stream.write_all(&all)).await;
    stream
}

/// What becomes of a lease that was asked for behind so many answers, when its caller then hangs up: `None` if it is not
/// granted within `patience`, since an earlier answer is stuck.
async fn fate(test: &Test, (long, short): (usize, usize), key: &str, patience: Duration) -> Option<&'static str> {
    let client = test.client();
    let stream = pipeline(test, long, short, key).await;
    let status = async || {
        let key = client.post("leases/get", json!({"lease_key": key})).await;
        key.body["lease"]["status"].as_str().map(str::to_owned)
    };
    timeout(patience, async {
        while status().await.is_none() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .ok()?;
    drop(stream);
    // It is taken back within a second.
    for _ in 0..20 {
        if status().await.as_deref() == Some("undelivered") {
            return Some("undelivered");
        }
        sleep(Duration::from_millis(20)).await;
    }
    Some("held")
}

/// Looks for the place where a lease is only just granted: the more answers lie between the server and a caller who reads
/// none, the less gets through, and there the grant's own answer is the first that cannot be written.
async fn find_stuck_grant(test: &Test, patience: Duration) -> Option<String> {
    let mut long = 0;
    for (is_long, most) in [(true, 128), (false, 512)] {
        let (mut made, mut not_made) = (0, most);
        while made + 1 < not_made {
            let answers = usize::midpoint(made, not_made);
            let place = if is_long { (answers, 0) } else { (long, answers) };
            let key = format!("{}/{place:?}", patience.as_millis());
            match fate(test, place, &key, patience).await {
                None => not_made = answers,
                Some("held") => made = answers,
                Some(_) => return Some(key),
            }
        }
        if is_long {
            long = made;
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_answer_cannot_be_written_is_taken_back() {
    let test = Test::start().await;
    for seconds in [1, 2, 4, 8] {
        // On a busy machine a grant may come later than we had the patience to wait for.
        if let Some(key) = find_stuck_grant(&test, Duration::from_secs(seconds)).await {
            let key = test.client().post("leases/get", json!({"lease_key": key})).await.ok();
            assert_eq!(key["status"], "free", "without lock delay or minimum hold");
            return;
        }
    }
    panic!("no grant was stuck between the server and its caller");
}
