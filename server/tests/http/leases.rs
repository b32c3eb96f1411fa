//! Each operation on leases, and what it is refused with.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Test, members};

const LEASE: [&str; 15] = [
    "acquired_at",
    "expires_at",
    "fencing_token",
    "job_key",
    "lease_id",
    "lease_key",
    "max_hold_until",
    "metadata",
    "owner",
    "renewals",
    "server_time",
    "status",
    "subjects",
    "ttl_remaining_ms",
    "updated_at",
];

fn micros(time: &Value) -> i64 {
    domain::Timestamp::parse(time.as_str().unwrap()).unwrap().as_micros()
}

#[tokio::test]
async fn a_lease_is_taken_renewed_and_given_back() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client
        .post("leases/acquire", json!({
            "lease_key": "nightly/report", "owner": "worker-1", "job_key": "report", "ttl_ms": 20_000, "max_hold_ms": 60_000,
            "subjects": ["customer:acme", "license:L-7"], "metadata": {"host": "a", "n": [1, null]},
        }))
        .await
        .ok();
    assert_eq!(members(&taken), LEASE);
    assert_eq!((&taken["status"], &taken["renewals"]), (&json!("held"), &json!(0)));
    assert_eq!((&taken["job_key"], &taken["metadata"]), (&json!("report"), &json!({"host": "a", "n": [1, null]})));
    assert_eq!(taken["subjects"], json!(["customer:acme", "license:L-7"]));
    assert_eq!(micros(&taken["expires_at"]) - micros(&taken["acquired_at"]), 20_000_000);
    assert_eq!(micros(&taken["max_hold_until"]) - micros(&taken["acquired_at"]), 60_000_000);
    assert_eq!((&taken["acquired_at"], &taken["ttl_remaining_ms"]), (&taken["server_time"], &json!(20_000)));

    let names = json!({"lease_key": "nightly/report", "lease_id": taken["lease_id"]});
    let with = |more: Value| {
        let mut all = names.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let renewed = client.post("leases/renew", with(json!({"ttl_ms": 40_000}))).await.ok();
    assert_eq!(members(&renewed), LEASE);
    assert_eq!((&renewed["renewals"], &renewed["fencing_token"]), (&json!(1), &taken["fencing_token"]));
    assert!(micros(&renewed["expires_at"]) > micros(&taken["expires_at"]));
    // Never earlier than it was, unless that is asked for.
    let kept = client.post("leases/renew", with(json!({"ttl_ms": 1_000}))).await.ok();
    assert_eq!(kept["expires_at"], renewed["expires_at"]);
    let shortened = client.post("leases/renew", with(json!({"ttl_ms": 10_000, "shorten": true}))).await.ok();
    assert!(micros(&shortened["expires_at"]) < micros(&renewed["expires_at"]));
    // Never past the maximum hold.
    let most = client.post("leases/renew", with(json!({"ttl_ms": 3_600_000}))).await.ok();
    assert_eq!(most["expires_at"], taken["max_hold_until"]);

    let released = client.post("leases/release", names.clone()).await.ok();
    assert_eq!((&released["outcome"], &released["status"]), (&json!("released"), &json!("released")));
    assert_eq!((&released["ttl_remaining_ms"], &released["expires_at"]), (&json!(0), &released["updated_at"]));
    let mut again = client.post("leases/release", names.clone()).await.ok();
    again["server_time"] = released["server_time"].clone();
    assert_eq!(again, released, "a second release answers the same");

    let error = client.post("leases/renew", names).await.refused(409, "lease_lost");
    assert_eq!(error["details"], json!({"reason": "released", "holder": null}));
}

#[tokio::test]
async fn who_is_in_the_way_is_told_exactly() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client.take("k", "worker-1").await;
    for owner in ["worker-2", "worker-1"] {
        let error = client.post("leases/acquire", json!({"lease_key": "k", "owner": owner})).await.refused(409, "held");
        let details = &error["details"];
        assert_eq!(members(details), ["expires_at", "owner", "queue_length", "retry_after_ms", "since"]);
        assert_eq!((&details["owner"], &details["queue_length"]), (&json!("worker-1"), &json!(0)));
        assert_eq!((&details["since"], &details["expires_at"]), (&taken["acquired_at"], &taken["expires_at"]));
        // At most five seconds, jittered by half.
        assert!((1..=7_500).contains(&details["retry_after_ms"].as_u64().unwrap()));
    }
    let reason = json!({"lease_key": "k", "reason": "stuck", "grace_ms": 60_000});
    let breaking = client.post("leases/break", reason).await.ok();
    assert_eq!((&breaking["status"], &breaking["lease_id"]), (&json!("breaking"), &taken["lease_id"]));
    let error = client.post("leases/acquire", json!({"lease_key": "k", "owner": "w"})).await.refused(409, "breaking");
    assert_eq!(members(&error["details"]).len(), 5);
    let renewed = client.post("leases/renew", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    assert_eq!(renewed["status"], "breaking", "so that the holder can stop");

    let cooling = json!({"lease_key": "c", "owner": "w", "lock_delay_ms": 60_000});
    client.post("leases/acquire", cooling.clone()).await.ok();
    let broken = client.post("leases/break", json!({"lease_key": "c", "reason": "now", "grace_ms": 0})).await.ok();
    assert_eq!(broken["status"], "broken");
    let error = client.post("leases/acquire", cooling).await.refused(409, "cooling");
    assert_eq!(members(&error["details"]).len(), 5);
    let key = client.post("leases/get", json!({"lease_key": "c"})).await.ok();
    assert_eq!((&key["status"], &key["cooling_until"]), (&json!("cooling"), &error["details"]["expires_at"]));
}

#[tokio::test]
async fn what_has_ended_stays_ended_and_touches_no_successor() {
    let test = Test::start().await;
    let client = test.client();
    let short = client.post("leases/acquire", json!({"lease_key": "k", "owner": "a", "ttl_ms": 100})).await.ok();
    let names = json!({"lease_key": "k", "lease_id": short["lease_id"]});
    sleep(Duration::from_millis(150)).await;
    let key = client.post("leases/get", json!({"lease_key": "k"})).await.ok();
    assert_eq!((&key["status"], &key["lease"]["status"]), (&json!("free"), &json!("expired")));
    assert_eq!(key["lease"]["ttl_remaining_ms"], 0);
    let error = client.post("leases/renew", names.clone()).await.refused(409, "lease_lost");
    assert_eq!(error["details"], json!({"reason": "expired", "holder": null}));
    let released = client.post("leases/release", names.clone()).await.ok();
    assert_eq!((&released["outcome"], &released["status"]), (&json!("expired"), &json!("expired")));

    let next = client.take("k", "b").await;
    assert!(next["fencing_token"].as_u64() > short["fencing_token"].as_u64());
    for operation in ["leases/renew", "leases/release"] {
        let error = client.post(operation, names.clone()).await.refused(409, "lease_lost");
        let holder = json!({"owner": "b", "since": next["acquired_at"]});
        assert_eq!(error["details"], json!({"reason": "expired", "holder": holder}), "{operation}");
        let unknown = json!({"lease_key": "k", "lease_id": "ls_00000000001"});
        client.post(operation, unknown).await.refused(404, "lease_unknown");
    }
    let key = client.post("leases/get", json!({"lease_key": "k"})).await.ok();
    assert_eq!((&key["lease"]["lease_id"], &key["status"]), (&next["lease_id"], &json!("held")));
}

#[tokio::test]
async fn a_lease_is_handed_over_with_its_time() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client.take("k", "a").await;
    let request = json!({"lease_key": "k", "lease_id": taken["lease_id"], "to_owner": "b"});
    let given = client.post("leases/transfer", request.clone()).await.ok();
    assert_eq!((&given["owner"], &given["expires_at"]), (&json!("b"), &taken["expires_at"]));
    assert_ne!(given["lease_id"], taken["lease_id"]);
    assert!(given["fencing_token"].as_u64() > taken["fencing_token"].as_u64());
    let error = client.post("leases/transfer", request).await.refused(409, "lease_lost");
    assert_eq!(error["details"]["reason"], "transferred");
    let unknown = json!({"lease_key": "k", "lease_id": "ls_00000000001", "to_owner": "c"});
    client.post("leases/transfer", unknown).await.refused(404, "lease_unknown");

    let request = json!({"lease_key": "k", "lease_id": given["lease_id"], "to_owner": "c"});
    client.post("leases/quarantine", json!({"lease_key": "k", "reason": "look"})).await.ok();
    client.post("leases/transfer", request.clone()).await.refused(409, "quarantined");
    client.post("leases/lift", json!({"lease_key": "k", "reason": "done"})).await.ok();
    client.post("leases/break", json!({"lease_key": "k", "reason": "stop"})).await.ok();
    client.post("leases/transfer", request).await.refused(409, "breaking");
}

#[tokio::test]
async fn a_break_means_the_lease_that_was_shown() {
    let test = Test::start().await;
    let client = test.client();
    client.post("leases/break", json!({"lease_key": "k", "reason": "r"})).await.refused(409, "not_held");
    let first = client.take("k", "a").await;
    client.post("leases/release", json!({"lease_key": "k", "lease_id": first["lease_id"]})).await.ok();
    let second = client.take("k", "b").await;
    let request = json!({"lease_key": "k", "reason": "r", "lease_id": first["lease_id"]});
    let error = client.post("leases/break", request).await.refused(409, "lease_lost");
    assert_eq!(error["details"]["holder"]["owner"], "b");
    let request = json!({"lease_key": "k", "reason": "r", "lease_id": second["lease_id"], "grace_ms": 0});
    assert_eq!(client.post("leases/break", request).await.ok()["status"], "broken");
}

#[tokio::test]
async fn a_quarantined_key_is_granted_to_nobody_while_its_holder_may_go_on() {
    let test = Test::start().await;
    let client = test.client();
    client.post("leases/lift", json!({"lease_key": "k", "reason": "r"})).await.refused(409, "not_quarantined");
    let taken = client.take("k", "a").await;
    let key = client.post("leases/quarantine", json!({"lease_key": "k", "reason": "corrupt"})).await.ok();
    assert_eq!(
        members(&key),
        ["cooling_until", "lease", "lease_key", "quarantine", "queue_length", "server_time", "status"]
    );
    assert_eq!(key["status"], "quarantined");
    assert_eq!(members(&key["quarantine"]), ["by", "reason", "since"]);
    assert_eq!(
        (&key["quarantine"]["reason"], &key["quarantine"]["by"]["name"]),
        (&json!("corrupt"), &json!("bootstrap"))
    );
    let names = json!({"lease_key": "k", "lease_id": taken["lease_id"]});
    client.post("leases/renew", names.clone()).await.ok();
    client.post("leases/release", names).await.ok();
    for wait_ms in [0, 10_000] {
        let request = json!({"lease_key": "k", "owner": "b", "wait_ms": wait_ms});
        let error = client.post("leases/acquire", request).await.refused(409, "quarantined");
        assert_eq!(members(&error["details"]), ["by", "reason", "since"]);
    }
    let key = client.post("leases/lift", json!({"lease_key": "k", "reason": "mended"})).await.ok();
    assert_eq!((&key["status"], &key["quarantine"]), (&json!("free"), &Value::Null));
    // Never leased, but known.
    client.post("leases/quarantine", json!({"lease_key": "new", "reason": "r"})).await.ok();
    assert_eq!(client.post("leases/get", json!({"lease_key": "new"})).await.ok()["lease"], Value::Null);
    client.post("leases/get", json!({"lease_key": "never"})).await.refused(404, "lease_key_unknown");
}

#[tokio::test]
async fn a_fencing_token_is_current_stale_or_unknown() {
    let test = Test::start().await;
    let client = test.client();
    let taken = client.take("k", "a").await;
    let token = taken["fencing_token"].as_u64().unwrap();
    let ask =
        async |token: u64| client.post("leases/validate", json!({"lease_key": "k", "fencing_token": token})).await.ok();
    assert_eq!(ask(token).await, json!({"verdict": "current", "current_token": token}));
    assert_eq!(ask(token - 1).await, json!({"verdict": "stale", "current_token": token}));
    assert_eq!(ask(token + 1).await, json!({"verdict": "unknown", "current_token": token}));
    client.post("leases/release", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    assert_eq!(ask(token).await, json!({"verdict": "stale", "current_token": token}));
    let never = client.post("leases/validate", json!({"lease_key": "never", "fencing_token": 1})).await.ok();
    assert_eq!(never, json!({"verdict": "unknown", "current_token": null}));
    let by_query = client.get(&format!("/api/v1/leases/validate?lease_key=k&fencing_token={token}")).await.ok();
    assert_eq!(by_query["verdict"], "stale");
}

#[tokio::test]
async fn several_keys_are_taken_together_or_not_at_all() {
    let test = Test::start().await;
    let client = test.client();
    let request = json!({"owner": "w", "ttl_ms": 5_000, "leases": [
        {"lease_key": "a"}, {"lease_key": "b", "ttl_ms": 9_000, "job_key": "j", "subjects": ["x:y"]},
    ]});
    let taken = client.post("leases/acquire-many", request).await.ok();
    assert_eq!(members(&taken), ["leases"]);
    let leases = taken["leases"].as_array().unwrap();
    assert_eq!(leases.iter().map(|lease| &lease["lease_key"]).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((&leases[0]["ttl_remaining_ms"], &leases[1]["ttl_remaining_ms"]), (&json!(5_000), &json!(9_000)));
    assert_eq!((members(&leases[0]), &leases[1]["job_key"]), (LEASE.to_vec(), &json!("j")));

    let request = json!({"owner": "w", "leases": [{"lease_key": "c"}, {"lease_key": "b"}, {"lease_key": "a"}]});
    let error = client.post("leases/acquire-many", request).await.refused(409, "keys_busy");
    let keys = error["details"]["keys"].as_array().unwrap();
    let mut named: Vec<_> =
        keys.iter().map(|key| (key["lease_key"].as_str().unwrap(), key["code"].as_str().unwrap())).collect();
    named.sort_unstable();
    assert_eq!(named, [("a", "held"), ("b", "held")], "all that are in the way are named");
    assert_eq!(members(&keys[0]["details"]).len(), 5);
    client.post("leases/get", json!({"lease_key": "c"})).await.refused(404, "lease_key_unknown");

    let twice = json!({"owner": "w", "leases": [{"lease_key": "x"}, {"lease_key": "x"}]});
    let error = client.post("leases/acquire-many", twice).await.refused(422, "lease_key_invalid");
    assert_eq!(error["field"], "leases[1].lease_key");
    let none = json!({"owner": "w", "leases": []});
    client.post("leases/acquire-many", none).await.refused(422, "leases_out_of_range");
}

#[tokio::test]
async fn a_batch_does_its_operations_in_order_each_with_its_result() {
    let test = Test::start().await;
    let client = test.client();
    let held = client.take("held", "other").await;
    let mine = client.take("mine", "w").await;
    let names = json!({"lease_key": "mine", "lease_id": mine["lease_id"]});
    let answer = client
        .post(
            "leases/batch",
            json!({"operations": [
                {"acquire": {"lease_key": "a", "owner": "w"}},
                {"acquire": {"lease_key": "held", "owner": "w"}},
                {"renew": names},
                {"release": names},
                {"renew": names},
                {"acquire": {"lease_key": "mine", "owner": "w2"}},
            ]}),
        )
        .await
        .ok();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(members(&results[0]["ok"]), LEASE);
    assert_eq!(results[1]["error"]["code"], "held");
    assert_eq!(results[1]["error"]["details"]["expires_at"], held["expires_at"]);
    assert_eq!(results[2]["ok"]["renewals"], 1);
    assert_eq!((&results[3]["ok"]["outcome"], &results[3]["ok"]["status"]), (&json!("released"), &json!("released")));
    assert_eq!(results[4]["error"]["code"], "lease_lost");
    assert_eq!(results[5]["ok"]["owner"], "w2");
    assert!(results.iter().all(|result| members(result).len() == 1));

    let waits = json!({"operations": [{"acquire": {"lease_key": "z", "owner": "w", "wait_ms": 5}}]});
    let error = client.post("leases/batch", waits).await.refused(422, "wait_ms_out_of_range");
    assert_eq!(error["field"], "operations[0].acquire.wait_ms");
    client.post("leases/batch", json!({"operations": []})).await.refused(422, "operations_out_of_range");
}

#[tokio::test]
async fn a_list_is_filtered_sorted_and_paged() {
    let test = Test::start().await;
    let client = test.client();
    let operations: Vec<Value> = (0..25)
        .map(|n| {
            json!({"acquire": {
                "lease_key": format!("p{}/{n:02}", n % 2), "owner": format!("o{}", n % 5), "job_key": "j",
                "subjects": [format!("customer:{}", n % 3)], "ttl_ms": 60_000 + n,
            }})
        })
        .collect();
    client.post("leases/batch", json!({"operations": operations})).await.ok();
    let page = client.post("leases/list", json!({})).await.ok();
    assert_eq!(members(&page), ["as_of", "items", "next", "server_time"]);
    assert_eq!(members(&page["as_of"]), ["position", "time"]);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (25, &Value::Null));
    assert_eq!(members(&page["items"][0]), LEASE);
    let count =
        async |request: Value| client.post("leases/list", request).await.ok()["items"].as_array().unwrap().len();
    assert_eq!(count(json!({"prefix": "p1/"})).await, 12);
    assert_eq!(count(json!({"owner": "o0"})).await, 5);
    assert_eq!(count(json!({"job_key": "j", "prefix": "p0/"})).await, 13);
    assert_eq!(count(json!({"job_key": "other"})).await, 0);
    assert_eq!(count(json!({"subject": "customer:1"})).await, 8);
    assert_eq!(count(json!({"status": "held"})).await, 25);
    assert_eq!(count(json!({"status": "released"})).await, 0);

    for sort in [
        "lease_key",
        "-lease_key",
        "acquired_at",
        "-acquired_at",
        "expires_at",
        "-expires_at",
        "updated_at",
        "-updated_at",
    ] {
        let (field, down) = (sort.trim_start_matches('-'), sort.starts_with('-'));
        let mut all: Vec<(String, String)> = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut request = json!({"sort": sort, "limit": 7});
            if !cursor.is_null() {
                request["cursor"] = cursor;
            }
            let page = client.post("leases/list", request).await.ok();
            let items = page["items"].as_array().unwrap();
            all.extend(
                items
                    .iter()
                    .map(|lease| (lease[field].as_str().unwrap().into(), lease["lease_key"].as_str().unwrap().into())),
            );
            cursor = page["next"].clone();
            if cursor.is_null() {
                break;
            }
            assert_eq!(items.len(), 7);
        }
        let mut keys: Vec<_> = all.iter().map(|(_, key)| key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!((all.len(), keys.len()), (25, 25), "{sort}: each lease once");
        let in_order = all.windows(2).all(|pair| if down { pair[0].0 >= pair[1].0 } else { pair[0].0 <= pair[1].0 });
        assert!(in_order, "{sort}: {all:?}");
    }
    let first = client.get("/api/v1/leases/list?limit=7&sort=-expires_at").await.ok();
    let cursor = first["next"].as_str().unwrap();
    let other = client.get(&format!("/api/v1/leases/list?limit=7&sort=expires_at&cursor={cursor}")).await;
    other.refused(422, "cursor_invalid");
    client.get("/api/v1/leases/list?cursor=nonsense").await.refused(422, "cursor_invalid");
}

#[tokio::test]
async fn every_grant_of_a_key_is_in_its_history_newest_first() {
    let test = Test::start().await;
    let client = test.client();
    for owner in ["a", "b", "c"] {
        let taken = client.take("k", owner).await;
        client.post("leases/release", json!({"lease_key": "k", "lease_id": taken["lease_id"]})).await.ok();
    }
    let first = client.get("/api/v1/leases/history?lease_key=k&limit=2").await.ok();
    assert_eq!(members(&first), ["as_of", "items", "next", "server_time"]);
    let owners =
        |page: &Value| page["items"].as_array().unwrap().iter().map(|lease| lease["owner"].clone()).collect::<Vec<_>>();
    assert_eq!(owners(&first), ["c", "b"]);
    let rest = client.post("leases/history", json!({"lease_key": "k", "limit": 2, "cursor": first["next"]})).await.ok();
    assert_eq!((owners(&rest), &rest["next"]), (vec![json!("a")], &Value::Null));
    assert_eq!(
        client.post("leases/list", json!({"status": "released"})).await.ok()["items"].as_array().unwrap().len(),
        3
    );
    client.post("leases/history", json!({"lease_key": "k", "cursor": "x"})).await.refused(422, "cursor_invalid");
}

#[tokio::test]
async fn reserved_keys_and_ranges_are_refused_with_the_field() {
    let test = Test::start().await;
    let client = test.client();
    for key in ["job:x", "job-leases/upkeep"] {
        let error = client
            .post("leases/acquire", json!({"lease_key": key, "owner": "w"}))
            .await
            .refused(422, "lease_key_invalid");
        assert_eq!(error["field"], "lease_key");
    }
    const DAY: u64 = 24 * 60 * 60 * 1000;
    for (field, value) in [
        ("ttl_ms", 0),
        ("ttl_ms", 99),
        ("ttl_ms", DAY + 1),
        ("ttl_ms", u64::MAX),
        ("wait_ms", 60_001),
        ("max_hold_ms", 0),
        ("max_hold_ms", u64::MAX),
        ("min_hold_ms", DAY + 1),
        ("lock_delay_ms", DAY + 1),
    ] {
        let request = json!({"lease_key": "k", "owner": "w", field: value});
        let error = client.post("leases/acquire", request).await.refused(422, &format!("{field}_out_of_range"));
        assert_eq!(error["field"], field, "{value}");
    }
    let grace = json!({"lease_key": "k", "reason": "r", "grace_ms": DAY + 1});
    client.post("leases/break", grace).await.refused(422, "grace_ms_out_of_range");
    let renew = json!({"lease_key": "k", "lease_id": "ls_00000000001", "ttl_ms": 0});
    client.post("leases/renew", renew).await.refused(422, "ttl_ms_out_of_range");
    let many = json!({"owner": "w", "leases": [{"lease_key": "a"}, {"lease_key": "b", "ttl_ms": 1}]});
    let error = client.post("leases/acquire-many", many).await.refused(422, "ttl_ms_out_of_range");
    assert_eq!(error["field"], "leases[1].ttl_ms");
    let many = json!({"owner": "w", "ttl_ms": 1, "leases": [{"lease_key": "a"}]});
    assert_eq!(client.post("leases/acquire-many", many).await.refused(422, "ttl_ms_out_of_range")["field"], "ttl_ms");
    // None of these left anything behind.
    assert_eq!(client.post("counters/get", json!({})).await.ok()["keys"], 0);
    // 0 means none where none is possible.
    let none = json!({"lease_key": "k", "owner": "w", "wait_ms": 0, "min_hold_ms": 0, "lock_delay_ms": 0});
    client.post("leases/acquire", none).await.ok();
}

#[tokio::test]
async fn the_figures_count_what_happened() {
    let test = Test::start().await;
    let client = test.client();
    client.take("a", "w").await;
    client.post("leases/acquire", json!({"lease_key": "b", "owner": "w", "job_key": "j"})).await.ok();
    for _ in 0..3 {
        client.post("leases/acquire", json!({"lease_key": "a", "owner": "x"})).await.refused(409, "held");
    }
    crate::support::until("the refusals are counted", async || {
        client.get("/api/v1/counters/get").await.ok()["collisions_total"] == 3
    })
    .await;
    let counters = client.post("counters/get", json!({})).await.ok();
    let figures = ["collisions_today", "collisions_total", "grants", "held", "jobs", "keys", "waiting"];
    let mut names = [&["as_of", "server_time"][..], &figures].concat();
    names.sort_unstable();
    assert_eq!(members(&counters), names);
    assert_eq!(figures.map(|name| counters[name].as_u64().unwrap()), [3, 3, 2, 2, 1, 2, 0]);
}

#[tokio::test]
async fn a_holder_hears_at_once_that_its_lease_is_to_end_or_is_over() {
    let test = Test::start().await;
    let client = test.client();
    let attend = |lease: &Value, wait: u64| {
        let body = json!({"lease_key": lease["lease_key"], "lease_id": lease["lease_id"], "wait_ms": wait});
        let client = test.client();
        tokio::spawn(async move {
            // Without being told it would come after the minute that was asked for.
            let soon = std::time::Duration::from_secs(20);
            tokio::time::timeout(soon, client.post("leases/attend", body)).await.expect("told at once").ok()
        })
    };
    // Nothing happens: told after the time asked for.
    let long = |key: &str| json!({"lease_key": key, "owner": "w", "ttl_ms": 600_000});
    let lease = client.post("leases/acquire", long("k")).await.ok();
    let key = attend(&lease, 200).await.unwrap();
    assert_eq!((&key["status"], &key["lease"]["lease_id"]), (&json!("held"), &lease["lease_id"]));
    // A renewal is no news; a break is.
    let attending = attend(&lease, 60_000);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    client.post("leases/renew", json!({"lease_key": "k", "lease_id": lease["lease_id"]})).await.ok();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!attending.is_finished());
    client.post("leases/break", json!({"lease_key": "k", "reason": "stuck", "grace_ms": 60_000})).await.ok();
    assert_eq!(attending.await.unwrap()["status"], "breaking");
    // What is to end already is told at once.
    assert_eq!(attend(&lease, 60_000).await.unwrap()["status"], "breaking");
    // So are a hand-over and a lease that somebody else has meanwhile.
    let lease = client.post("leases/acquire", long("l")).await.ok();
    let attending = attend(&lease, 60_000);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let transfer = json!({"lease_key": "l", "lease_id": lease["lease_id"], "to_owner": "other"});
    let next = client.post("leases/transfer", transfer).await.ok();
    assert_eq!(attending.await.unwrap()["lease"]["lease_id"], next["lease_id"]);
    assert_eq!(attend(&lease, 60_000).await.unwrap()["lease"]["owner"], "other");
    let unknown = json!({"lease_key": "never", "lease_id": lease["lease_id"]});
    client.post("leases/attend", unknown).await.refused(404, "lease_key_unknown");
    let too_long = json!({"lease_key": "l", "lease_id": lease["lease_id"], "wait_ms": 60_001});
    client.post("leases/attend", too_long).await.refused(422, "wait_ms_out_of_range");
}

#[tokio::test]
async fn a_key_is_inspected_with_its_waiters_renewals_and_what_operators_did() {
    let test = Test::start().await;
    let client = test.client();
    let lease = client.take("k", "holder").await;
    let names = json!({"lease_key": "k", "lease_id": lease["lease_id"]});
    for _ in 0..3 {
        client.post("leases/renew", names.clone()).await.ok();
    }
    let wait = |owner: &str| {
        let (client, body) = (test.client(), json!({"lease_key": "k", "owner": owner, "wait_ms": 60_000}));
        tokio::spawn(async move { client.post("leases/acquire", body).await })
    };
    let inspect = async || client.post("leases/inspect", json!({"lease_key": "k"})).await.ok();
    let first = wait("first");
    crate::support::until("one waits", async || inspect().await["queue_length"] == 1).await;
    let second = wait("second");
    crate::support::until("two wait", async || inspect().await["queue_length"] == 2).await;
    let key = inspect().await;
    let owners: Vec<_> = key["waiters"].as_array().unwrap().iter().map(|waiter| waiter["owner"].clone()).collect();
    assert_eq!(owners, ["first", "second"]);
    let renewals = key["recent_renewals"].as_array().unwrap();
    assert_eq!((renewals.len(), &key["lease"]["renewals"]), (3, &json!(3)));
    assert!(renewals.windows(2).all(|pair| pair[0]["at"].as_str() > pair[1]["at"].as_str()), "newest first");
    assert!(renewals.iter().all(|renewal| renewal["margin_ms"].as_u64().unwrap() > 1_000));
    assert_eq!(key["interventions"], json!([]));

    client.post("leases/break", json!({"lease_key": "k", "reason": "stuck", "grace_ms": 0})).await.ok();
    client.post("leases/quarantine", json!({"lease_key": "k", "reason": "bad data"})).await.ok();
    let key = inspect().await;
    let done: Vec<_> = key["interventions"].as_array().unwrap().iter().map(|done| &done["kind"]).collect();
    assert_eq!(done, ["key.quarantined", "lease.broken"]);
    assert_eq!(
        (&key["interventions"][1]["reason"], &key["interventions"][1]["owner"]),
        (&json!("stuck"), &json!("holder"))
    );
    assert_eq!(key["recent_renewals"], json!([]), "those of the lease that it is held by now");
    first.await.unwrap().ok();
    second.await.unwrap().refused(409, "quarantined");
}

#[tokio::test]
async fn trends_tell_each_minute_and_the_timeline_is_read_backwards() {
    let test = Test::start().await;
    let client = test.client();
    for n in 0..7 {
        let lease = client.take(&format!("a/{n}"), "w").await;
        if n < 3 {
            client
                .post("leases/release", json!({"lease_key": lease["lease_key"], "lease_id": lease["lease_id"]}))
                .await
                .ok();
        }
    }
    client.post("leases/acquire", json!({"lease_key": "a/6", "owner": "x"})).await.refused(409, "held");
    crate::support::until("the refusal is counted", async || {
        let trend = client.post("counters/trend", json!({"minutes": 5})).await.ok();
        trend["minutes"].as_array().unwrap().iter().map(|minute| minute["refused"].as_u64().unwrap()).sum::<u64>() == 1
    })
    .await;
    let trend = client.post("counters/trend", json!({"minutes": 5})).await.ok();
    let minutes = trend["minutes"].as_array().unwrap();
    let sum = |name: &str| minutes.iter().map(|minute| minute[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((minutes.len(), sum("granted"), sum("released"), &minutes[4]["held"]), (5, 7, 3, &json!(4)));
    client.post("counters/trend", json!({"minutes": 0})).await.refused(422, "minutes_out_of_range");
    test.limited("viewer", &["a/"]).await.post("counters/trend", json!({})).await.refused(403, "forbidden");

    // Page by page, the newest first, without gap or repeat.
    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut body = json!({"kind": "lease", "limit": 3, "prefix": "a/"});
        if !cursor.is_null() {
            body["cursor"] = cursor;
        }
        let page = client.post("timeline/list", body).await.ok();
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["position"].as_u64().unwrap()));
        cursor = page["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen.len(), 10);
    assert!(seen.windows(2).all(|pair| pair[0] > pair[1]));
    let limited = test.limited("viewer", &["a/1"]).await;
    let page = limited.post("timeline/list", json!({})).await.ok();
    let items = page["items"].as_array().unwrap();
    assert!(!items.is_empty() && items.iter().all(|item| item["event"]["lease_key"] == "a/1"), "{page}");
}
