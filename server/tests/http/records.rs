//! Records by the beginning of their names.

use serde_json::{Value, json};

use crate::support::{Client, Test};

async fn found(client: &Client, request: Value) -> Vec<(String, String)> {
    let answer = client.post("records/find", request).await.ok();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    answer["items"].as_array().unwrap().iter().map(|item| (text(item, "kind"), text(item, "name"))).collect()
}

fn names(found: &[(String, String)]) -> Vec<(&str, &str)> {
    found.iter().map(|(kind, name)| (&**kind, &**name)).collect()
}

#[tokio::test]
async fn records_of_every_kind_are_found_by_the_beginning_of_their_names() {
    let test = Test::start().await;
    let client = test.client();
    for (key, owner, job, subjects) in [
        ("acme/close", "accountant", "acme-close", json!(["customer:acme", "invoice:2026-1"])),
        ("acme/open", "worker-1", "acme-open", json!(["customer:acme", "customer:acme-eu"])),
        ("zebra", "acme-worker", "other", json!(["license:acme", "x:acme"])),
    ] {
        let request = json!({"lease_key": key, "owner": owner, "job_key": job, "subjects": subjects});
        client.post("leases/acquire", request).await.ok();
    }
    let lease = client.post("leases/get", json!({"lease_key": "acme/open"})).await.ok();
    let release = json!({"lease_key": "acme/open", "lease_id": lease["lease"]["lease_id"]});
    client.post("leases/release", release).await.ok();

    let all = [
        ("lease", "acme/close"),
        ("lease", "acme/open"),
        ("owner", "acme-worker"),
        ("job", "acme-close"),
        ("job", "acme-open"),
        ("subject", "customer:acme"),
        ("subject", "customer:acme-eu"),
        ("subject", "license:acme"),
    ];
    assert_eq!(names(&found(&client, json!({"prefix": "acme"})).await), all);
    let one_of_each =
        [("lease", "acme/close"), ("owner", "acme-worker"), ("job", "acme-close"), ("subject", "customer:acme")];
    assert_eq!(names(&found(&client, json!({"prefix": "acme", "limit": 1})).await), one_of_each);
    assert_eq!(names(&found(&client, json!({"prefix": "invoice:2026"})).await), [("subject", "invoice:2026-1")]);
    assert_eq!(names(&found(&client, json!({"prefix": "x:"})).await), [("subject", "x:acme")]);
    assert_eq!(found(&client, json!({"prefix": "Acme"})).await, [], "names are told apart by case");
    let answer = client.post("records/find", json!({"prefix": "acme/"})).await.ok();
    assert_eq!((&answer["items"][0]["status"], &answer["items"][0]["owner"]), (&json!("held"), &json!("accountant")));
    assert_eq!(answer["items"][1]["status"], "released");
    client.post("records/find", json!({})).await.refused(422, "prefix_invalid");
    client.post("records/find", json!({"prefix": "a", "limit": 0})).await.refused(422, "limit_out_of_range");
}

#[tokio::test]
async fn who_may_see_some_keys_only_is_told_of_no_other_name() {
    let test = Test::start().await;
    let acquire = json!({"lease_key": "b/x", "owner": "a-worker", "job_key": "a-job", "subjects": ["customer:a"]});
    test.client().post("leases/acquire", acquire).await.ok();
    let acquire = json!({"lease_key": "a/x", "owner": "a-worker"});
    test.client().post("leases/acquire", acquire).await.ok();
    let limited = test.limited("viewer", &["a/"]).await;
    assert_eq!(names(&found(&limited, json!({"prefix": "a"})).await), [("lease", "a/x")]);
    assert_eq!(found(&limited, json!({"prefix": "b"})).await, []);
}
