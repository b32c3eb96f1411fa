//! The event stream: in order, without gap or duplicate, resumed or not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{Answer, Client, Test};

/// A reader of a stream.
struct Reader {
    response: Response,
    buffer: String,
    /// The last id seen.
    id: String,
    comments: usize,
}

impl Reader {
    async fn open(client: &Client, query: &str, after: Option<&str>) -> Self {
        let mut request = client.request(Method::GET, &format!("/api/v1/events{query}"));
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut reader = Self { response, buffer: String::new(), id: String::new(), comments: 0 };
        while reader.id.is_empty() {
            assert!(reader.block().await.unwrap().is_none(), "an id without data comes first");
        }
        reader
    }

    /// The next block: its data if it has any. `None` when the stream has ended.
    async fn block(&mut self) -> Option<Option<Value>> {
        let block = loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let block = block.to_owned();
                self.buffer = rest.to_owned();
                break block;
            }
            let chunk = self.response.chunk().await.ok()??;
            self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
        };
        let mut data = None;
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => self.id = id.to_owned(),
                Some(("data", json)) => data = Some(serde_json::from_str(json).unwrap()),
                Some(("", _)) => self.comments += 1,
                Some(("retry", _)) => {}
                _ => panic!("{line}"),
            }
        }
        Some(data)
    }

    /// The next event and its id.
    async fn event(&mut self) -> (String, Value) {
        loop {
            let block = timeout(Duration::from_secs(60), self.block()).await.expect("an event comes");
            if let Some(event) = block.expect("the stream goes on") {
                return (self.id.clone(), event);
            }
        }
    }

    async fn events(&mut self, count: usize) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.event().await);
        }
        events
    }
}

fn position(id: &str) -> u64 {
    id.split('-').nth(1).unwrap().parse().unwrap()
}

/// Six events on that key.
async fn happen(client: &Client, key: &str) {
    let taken = client.take(key, "w").await;
    let names = json!({"lease_key": key, "lease_id": taken["lease_id"]});
    client.post("leases/renew", names.clone()).await.ok();
    client.post("leases/break", json!({"lease_key": key, "reason": "r"})).await.ok();
    client.post("leases/release", names).await.ok();
    client.post("leases/quarantine", json!({"lease_key": key, "reason": "r"})).await.ok();
    client.post("leases/lift", json!({"lease_key": key, "reason": "r"})).await.ok();
}

const KINDS: [&str; 6] =
    ["lease.granted", "lease.renewed", "lease.breaking", "lease.released", "key.quarantined", "key.lifted"];

#[tokio::test]
async fn every_change_comes_in_order_with_who_and_in_which_request() {
    let test = Test::start().await;
    let client = test.client();
    client.take("before", "w").await;
    let mut reader = Reader::open(&client, "", None).await;
    let start = position(&reader.id);
    happen(&client, "k").await;
    let events = reader.events(6).await;
    assert_eq!(
        events.iter().map(|(_, event)| event["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        KINDS,
        "from now on"
    );
    assert_eq!(
        events.iter().map(|(id, _)| position(id)).collect::<Vec<_>>(),
        (start + 1..=start + 6).collect::<Vec<_>>()
    );
    for (_, event) in &events {
        assert_eq!((&event["lease_key"], &event["actor"]["name"]), (&json!("k"), &json!("bootstrap")));
        assert!(event["request_id"].is_string() && event["at"].is_string());
    }
}

#[tokio::test]
async fn resumed_anywhere_equals_uninterrupted() {
    let test = Test::start().await;
    let client = test.client();
    let mut whole = Reader::open(&client, "", None).await;
    let start = whole.id.clone();
    for n in 0..5 {
        happen(&client, &format!("k{n}")).await;
    }
    let all = whole.events(30).await;
    for cut in [0, 1, 7, 15, 29, 30] {
        let after = if cut == 0 { &start } else { &all[cut - 1].0 };
        let mut resumed = Reader::open(&client, "", Some(after)).await;
        assert_eq!(resumed.events(30 - cut).await, all[cut..], "after {cut}");
        let mut by_query = Reader::open(&client, &format!("?last_event_id={after}"), None).await;
        assert_eq!(by_query.events(30 - cut).await, all[cut..], "after {cut}");
    }
}

#[tokio::test]
async fn streams_are_filtered_by_what_is_asked_and_by_what_may_be_seen() {
    let test = Test::start().await;
    let client = test.client();
    let limited = test.limited("viewer", &["a/"]).await;
    let start = Reader::open(&client, "", None).await.id;
    for key in ["a/1", "b/1", "a/2"] {
        happen(&client, key).await;
    }
    // Concerns no key, so it is for those who see all.
    test.limited("viewer", &[]).await;
    let keys =
        |events: &[(String, Value)]| events.iter().map(|(_, event)| event["lease_key"].clone()).collect::<Vec<_>>();
    let asked = Reader::open(&client, "?prefix=b/", Some(&start)).await.events(6).await;
    assert!(keys(&asked).iter().all(|key| key == "b/1"));
    let mut seen = Reader::open(&limited, "", Some(&start)).await;
    let events = seen.events(12).await;
    assert!(keys(&events).iter().all(|key| key.as_str().unwrap().starts_with("a/")));
    let mut both = Reader::open(&limited, "?prefix=b/", Some(&start)).await;
    assert!(timeout(Duration::from_millis(300), both.event()).await.is_err(), "nothing is left of it");
    let all = Reader::open(&client, "", Some(&start)).await.events(19).await;
    assert_eq!(all[18].1["kind"], "token.created");
    assert!(timeout(Duration::from_millis(300), seen.event()).await.is_err());
}

#[tokio::test]
async fn an_id_that_leads_nowhere_is_refused() {
    let test = Test::start().await;
    let client = test.client();
    let id = Reader::open(&client, "", None).await.id;
    let ask = async |id: &str| {
        let request = client.request(Method::GET, "/api/v1/events").header("Last-Event-ID", id);
        let answer = Answer::of(request.send().await.unwrap());
        timeout(Duration::from_secs(20), answer).await.expect("an answer that has an end")
    };
    for bad in ["", "7", "x-y", "-"] {
        let error = ask(bad).await.refused(422, "last_event_id_invalid");
        assert_eq!(error["field"], "last_event_id");
    }
    let [epoch, position, mark] = id.split('-').collect::<Vec<_>>()[..] else { panic!("{id}") };
    assert!(mark.len() == 8 && mark.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let ahead: u64 = position.parse::<u64>().unwrap() + 1_000;
    for gone in [
        format!("another-{position}-{mark}"),
        format!("{epoch}-{ahead}-{mark}"),
        format!("{epoch}-{position}-00000000"),
        format!("{epoch}-{position}-"),
        format!("{epoch}-{position}"),
    ] {
        ask(&gone).await.refused(410, "compacted");
    }
    assert_eq!(Reader::open(&client, "", Some(&id)).await.id, id, "and this one leads on");
    client.get("/api/v1/events?colour=red").await.refused(422, "unknown_field");
    client.get("/api/v1/events?prefix=").await.refused(422, "prefix_invalid");
}

#[tokio::test]
async fn a_quiet_stream_says_so_and_passes_on_where_it_is() {
    let test = Test::start().await;
    let client = test.client();
    let mut reader = Reader::open(&client, "?prefix=quiet", None).await;
    let start = position(&reader.id);
    happen(&client, "k").await;
    let block = timeout(Duration::from_secs(60), reader.block()).await.expect("a comment comes every 15 s");
    assert_eq!((block.unwrap(), reader.comments), (None, 1));
    assert_eq!(position(&reader.id), start + 6, "so that it does not fall behind what is kept");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_does() {
    let test = Test::start().await;
    let made = test.client().post("tokens/create", json!({"name": "t", "role": "viewer"})).await.ok();
    let viewer = test.client_with(made["token"].as_str().unwrap());
    let mut reader = Reader::open(&viewer, "", None).await;
    test.client().post("tokens/revoke", json!({"token_id": made["token_id"]})).await.ok();
    test.client().take("k", "w").await;
    let end = timeout(Duration::from_secs(60), reader.block()).await.expect("it ends");
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let test = Test::start().await;
    let client = test.client();
    let slow = client.request(Method::GET, "/api/v1/events").send().await.unwrap();
    let mut quick = Reader::open(&client, "", None).await;
    let operations: Vec<Value> = (0..500)
        .map(|n| json!({"acquire": {"lease_key": format!("k{n}"), "owner": "w", "metadata": {"note": "x".repeat(1_500)}}}))
        .collect();
    client.post("leases/batch", json!({"operations": operations})).await.ok();
    assert_eq!(quick.events(500).await.len(), 500);
    // It then reads all of it after all.
    sleep(Duration::from_millis(100)).await;
    let mut bytes = 0;
    let mut stream = slow.bytes_stream();
    while bytes < 500 * 1_500 {
        bytes += timeout(Duration::from_secs(60), stream.next()).await.unwrap().unwrap().unwrap().len();
    }
}

/// Copies the files of a database that nobody serves, in place of those that are there.
fn copy_files(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm", "-views", "-views-wal", "-views-shm"] {
        let name = format!("test.db{suffix}");
        let _ = std::fs::remove_file(to.join(&name));
        if from.join(&name).exists() {
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

#[tokio::test]
async fn an_id_from_before_a_restore_is_refused_although_there_is_a_line_at_its_place() {
    let (folder, copy) = (Arc::new(tempfile::tempdir().unwrap()), tempfile::tempdir().unwrap());
    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    happen(&test.client(), "kept").await;
    let before = Reader::open(&test.client(), "", None).await.id;
    test.server.stop().await;
    copy_files(folder.path(), copy.path());

    let test = Test::on(Arc::clone(&folder), |_| {}).await;
    let mut reader = Reader::open(&test.client(), "", Some(&before)).await;
    happen(&test.client(), "lost").await;
    let lost = reader.events(6).await;
    test.server.stop().await;
    copy_files(copy.path(), folder.path());

    let test = Test::on(folder, |_| {}).await;
    let client = test.client();
    happen(&client, "other").await;
    happen(&client, "another").await;
    for (id, _) in &lost {
        let request = client.request(Method::GET, "/api/v1/events").header("Last-Event-ID", id);
        let answer = request.send().await.unwrap();
        // An answer of another kind would have no end.
        assert_eq!(answer.status(), 410);
        Answer::of(answer).await.refused(410, "compacted");
    }
    // What was given out before the copy was made still leads on.
    let mut resumed = Reader::open(&client, "", Some(&before)).await;
    assert_eq!(resumed.events(12).await[0].1["lease_key"], "other");
}
