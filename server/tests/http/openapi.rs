//! The description of the API, held against the API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Test, members};

fn schema<'a>(document: &'a Value, mut schema: &'a Value) -> &'a Value {
    while let Some(reference) = schema["$ref"].as_str() {
        schema = &document["components"]["schemas"][reference.rsplit('/').next().unwrap()];
        assert!(schema.is_object(), "{reference}");
    }
    schema
}

/// What is wrong with `value`, if it is not as the schema says.
fn fault(document: &Value, described: &Value, value: &Value, at: &str) -> Option<String> {
    let described = schema(document, described);
    if let Some(choices) = described["oneOf"].as_array() {
        let faults: Vec<_> = choices.iter().map(|choice| fault(document, choice, value, at)).collect();
        return if faults.contains(&None) { None } else { Some(format!("{at}: none of {faults:?}")) };
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("{at}: what type is {kind}?"),
    };
    let kind = &described["type"];
    if !kind.as_array().map_or_else(|| is(kind), |kinds| kinds.iter().any(is)) {
        return Some(format!("{at}: {value} is not of type {kind}"));
    }
    if let Some(names) = described["enum"].as_array()
        && !names.contains(value)
    {
        return Some(format!("{at}: {value} is none of {names:?}"));
    }
    if let Some(fields) = value.as_object()
        && described["properties"].is_object()
    {
        for name in described["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                return Some(format!("{at}: {name} is missing"));
            }
        }
        for (name, value) in fields {
            let Some(field) = described["properties"].get(name) else {
                return Some(format!("{at}.{name} is not described"));
            };
            if let Some(fault) = fault(document, field, value, &format!("{at}.{name}")) {
                return Some(fault);
            }
        }
    }
    value
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|item| fault(document, &described["items"], item, &format!("{at}[]")))
}

fn check(document: &Value, described: &Value, value: &Value, at: &str) {
    if let Some(fault) = fault(document, described, value, at) {
        panic!("{fault}");
    }
}

#[tokio::test]
async fn every_operation_reads_the_fields_that_are_described_and_no_others() {
    let test = Test::start().await;
    let client = test.client();
    let document = client.get("/api/v1/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(post) = methods.get("post") else { continue };
        operations += 1;
        let operation = path.trim_start_matches("/api/v1/");
        let described = schema(&document, &post["requestBody"]["content"]["application/json"]["schema"]);
        // The reader itself tells which fields it knows; the message is serde's.
        let error = client.post(operation, json!({"\u{1}": 1})).await.refused(422, "unknown_field");
        assert_eq!(error["field"], "\u{1}");
        for field in described["properties"].as_object().unwrap().keys() {
            // A field that is known is not called unknown, whatever else is wrong.
            let answer = client.post(operation, json!({field: {"\u{1}": {}}})).await;
            assert_ne!(answer.body["code"], "unknown_field", "{path} does not know {field}");
        }
        for required in described["required"].as_array().into_iter().flatten() {
            let mut all = json!({"lease_key": "k", "owner": "w", "lease_id": "ls_00000000001", "to_owner": "w", "reason": "r",
                "fencing_token": 1, "leases": [{"lease_key": "k"}], "operations": [{"acquire": {"lease_key": "k", "owner": "w"}}],
                "name": "n", "role": "viewer", "token_id": "t"});
            let known = described["properties"].as_object().unwrap();
            all.as_object_mut()
                .unwrap()
                .retain(|name, _| known.contains_key(name) && name != required.as_str().unwrap());
            let error =
                client.post(operation, all).await.refused(422, &format!("{}_invalid", required.as_str().unwrap()));
            assert!(error["message"].as_str().unwrap().ends_with("is required"), "{error}");
        }
        if let Some(get) = methods.get("get") {
            let mut parameters: Vec<_> =
                get["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
            parameters.sort_unstable();
            assert_eq!(parameters, members(&described["properties"]), "{path}");
            let unknown = Answer::of(client.request(Method::GET, &format!("{path}?%01=1")).send().await.unwrap()).await;
            unknown.refused(422, "unknown_field");
        } else {
            let get = Answer::of(client.request(Method::GET, path).send().await.unwrap()).await;
            assert_eq!(get.status, 405, "{path}");
        }
    }
    assert_eq!(operations, 24);
}

#[tokio::test]
async fn every_answer_is_as_described() {
    let test = Test::start().await;
    let client = test.client();
    let document = client.get("/api/v1/openapi.json").await.ok();
    let full = json!({"lease_key": "a", "owner": "w", "job_key": "j", "ttl_ms": 60_000, "max_hold_ms": 90_000,
        "subjects": ["x:y"], "metadata": {"a": 1}, "lock_delay_ms": 60_000});
    let a = client.post("leases/acquire", full.clone()).await.ok();
    let names = json!({"lease_key": "a", "lease_id": a["lease_id"]});
    let handed = json!({"lease_key": "a", "lease_id": a["lease_id"], "to_owner": "x"});
    let token = client.post("tokens/create", json!({"name": "n", "role": "viewer", "prefixes": ["p"]})).await.ok();
    for (operation, request) in [
        ("leases/acquire", json!({"lease_key": "b", "owner": "w"})),
        ("leases/acquire", full),
        ("leases/renew", names.clone()),
        ("leases/get", json!({"lease_key": "a"})),
        ("leases/attend", names.clone()),
        ("leases/quarantine", json!({"lease_key": "a", "reason": "r"})),
        ("leases/inspect", json!({"lease_key": "a"})),
        ("leases/lift", json!({"lease_key": "a", "reason": "r"})),
        ("counters/trend", json!({"minutes": 2})),
        ("timeline/list", json!({"kind": "lease", "limit": 2})),
        ("records/find", json!({"prefix": "a", "limit": 2})),
        ("records/find", json!({"prefix": "w"})),
        ("leases/validate", json!({"lease_key": "a", "fencing_token": a["fencing_token"]})),
        ("leases/validate", json!({"lease_key": "z", "fencing_token": 1})),
        ("leases/transfer", handed),
        ("leases/release", names.clone()),
        ("leases/break", json!({"lease_key": "a", "reason": "r", "grace_ms": 0})),
        ("leases/get", json!({"lease_key": "a"})),
        ("leases/quarantine", json!({"lease_key": "a", "reason": "r"})),
        ("leases/get", json!({"lease_key": "a"})),
        ("leases/acquire", json!({"lease_key": "a", "owner": "x"})),
        ("leases/lift", json!({"lease_key": "a", "reason": "r"})),
        ("leases/acquire-many", json!({"owner": "w", "leases": [{"lease_key": "m1"}, {"lease_key": "m2"}]})),
        ("leases/acquire-many", json!({"owner": "w", "leases": [{"lease_key": "m1"}, {"lease_key": "m3"}]})),
        ("leases/batch", json!({"operations": [{"acquire": {"lease_key": "q", "owner": "w"}}, {"release": names}]})),
        ("leases/list", json!({"limit": 1})),
        ("leases/history", json!({"lease_key": "a", "limit": 1})),
        ("counters/get", json!({})),
        ("meta/get", json!({})),
        ("sessions/current", json!({})),
        ("tokens/create", json!({"name": "n", "role": "viewer", "expires_at": "2999-01-01T00:00:00Z"})),
        ("tokens/list", json!({"limit": 1})),
        ("tokens/revoke", json!({"token_id": token["token_id"]})),
        ("tokens/revoke", json!({"token_id": "none"})),
    ] {
        let answer = client.post(operation, request.clone()).await;
        let status = answer.status.as_u16().to_string();
        let described = &document["paths"][format!("/api/v1/{operation}")]["post"]["responses"][&status];
        assert!(described.is_object(), "{operation} answers {status}, which is not described");
        check(&document, &described["content"]["application/json"]["schema"], &answer.body, operation);
        if let Some(code) = answer.body["code"].as_str() {
            assert!(described["description"].as_str().unwrap().contains(&format!("`{code}`")), "{operation}: {code}");
        }
    }
}
