//! What is refused before any rule is asked.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{ADMIN, Answer, Test};

const JSON: &str = "application/json";

#[tokio::test]
async fn a_body_is_a_json_object_of_at_most_a_mebibyte() {
    let test = Test::start().await;
    let client = test.client();
    for body in ["", "{", "[]", "null", "\"x\"", "{\"lease_key\":\"k\",}", "{} {}"] {
        client.raw("leases/get", JSON, body).await.refused(400, "malformed");
    }
    client.raw("leases/get", JSON, vec![b'{', b'"', 0xff, b'"', b'}']).await.refused(400, "malformed");
    // Nor may the fields of an object come as a list, at any depth.
    for (operation, body) in [
        ("leases/acquire", "[\"k\",\"w\"]"),
        ("leases/acquire-many", "{\"owner\":\"w\",\"leases\":[[\"k\"]]}"),
        ("leases/batch", "{\"operations\":[{\"release\":[\"k\",\"ls_00000000001\"]}]}"),
        ("leases/batch", "{\"operations\":[{\"acquire\":[\"k\",\"w\"]}]}"),
    ] {
        let answer = client.raw(operation, JSON, body).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{body}: {}", answer.body);
    }
    let deep = format!("{{\"lease_key\":{}", "[".repeat(100_000));
    client.raw("leases/get", JSON, deep).await.refused(400, "malformed");
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ""] {
        let body = "{\"lease_key\":\"k\"}";
        client.raw("leases/get", content_type, body).await.refused(415, "unsupported_media_type");
    }
    client
        .raw("leases/get", "application/json; charset=utf-8", "{\"lease_key\":\"k\"}")
        .await
        .refused(404, "lease_key_unknown");
    let large = format!("{{\"lease_key\":\"{}\"}}", "k".repeat(1024 * 1024));
    client.raw("leases/get", JSON, large).await.refused(413, "too_large");
    let whole = format!("{{\"lease_key\":\"{}\"}}", "k".repeat(1024 * 1024 - 16));
    client.raw("leases/get", JSON, whole).await.refused(422, "lease_key_invalid");
}

#[tokio::test]
async fn the_field_at_fault_is_named() {
    let test = Test::start().await;
    let client = test.client();
    let long = "k".repeat(513);
    let large = json!({"a": "x".repeat(4096)});
    let many: Vec<&str> = vec!["a:b"; 17];
    for (body, code, field) in [
        (json!({"owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": null, "owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": "", "owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": " k", "owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": "k\n", "owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": long, "owner": "w"}), "lease_key_invalid", "lease_key"),
        (json!({"lease_key": "k", "owner": "w".repeat(257)}), "owner_invalid", "owner"),
        (json!({"lease_key": "k", "owner": "w", "job_key": 5}), "job_key_invalid", "job_key"),
        (json!({"lease_key": "k", "owner": "w", "ttl_ms": null}), "ttl_ms_invalid", "ttl_ms"),
        (json!({"lease_key": "k", "owner": "w", "ttl_ms": "5"}), "ttl_ms_invalid", "ttl_ms"),
        (json!({"lease_key": "k", "owner": "w", "ttl_ms": 1.5}), "ttl_ms_invalid", "ttl_ms"),
        (json!({"lease_key": "k", "owner": "w", "ttl_ms": -5}), "ttl_ms_out_of_range", "ttl_ms"),
        (json!({"lease_key": "k", "owner": "w", "ttl_ms": 1e30}), "ttl_ms_out_of_range", "ttl_ms"),
        (json!({"lease_key": "k", "owner": "w", "ttl": 5}), "unknown_field", "ttl"),
        (json!({"lease_key": "k", "owner": "w", "subjects": ["acme"]}), "subjects_invalid", "subjects[0]"),
        (json!({"lease_key": "k", "owner": "w", "subjects": many}), "subjects_out_of_range", "subjects"),
        (json!({"lease_key": "k", "owner": "w", "metadata": []}), "metadata_invalid", "metadata"),
        (json!({"lease_key": "k", "owner": "w", "metadata": large}), "metadata_invalid", "metadata"),
    ] {
        let error = client.post("leases/acquire", body.clone()).await.refused(422, code);
        assert_eq!(error["field"], field, "{body}");
    }
    let id = client
        .post("leases/release", json!({"lease_key": "k", "lease_id": "7"}))
        .await
        .refused(422, "lease_id_invalid");
    assert_eq!(id["field"], "lease_id");
    for token in [json!(0), json!(9_007_199_254_740_992_u64), json!(-1)] {
        let request = json!({"lease_key": "k", "fencing_token": token});
        client.post("leases/validate", request).await.refused(422, "fencing_token_out_of_range");
    }
    let nested = json!({"operations": [{"release": {"lease_key": "k", "lease_id": "ls_00000000001"}}, {"renew": {"lease_key": "k"}}]});
    let error = client.post("leases/batch", nested).await.refused(422, "lease_id_invalid");
    assert_eq!(error["field"], "operations[1].renew.lease_id");
    let operations: Vec<Value> = (0..501).map(|_| json!({"acquire": {"lease_key": "k", "owner": "w"}})).collect();
    client.post("leases/batch", json!({"operations": operations})).await.refused(422, "operations_out_of_range");
    let leases: Vec<Value> = (0..101).map(|n| json!({"lease_key": n.to_string()})).collect();
    client
        .post("leases/acquire-many", json!({"owner": "w", "leases": leases}))
        .await
        .refused(422, "leases_out_of_range");
    client.post("leases/break", json!({"lease_key": "k"})).await.refused(422, "reason_invalid");
    client.post("tokens/create", json!({"name": "x", "role": "root"})).await.refused(422, "role_invalid");
    client
        .post("tokens/create", json!({"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}))
        .await
        .refused(422, "expires_at_out_of_range");
    client
        .post("tokens/create", json!({"name": "x", "role": "viewer", "expires_at": "tomorrow"}))
        .await
        .refused(422, "expires_at_invalid");
    client.post("counters/get", json!({"all": true})).await.refused(422, "unknown_field");
}

#[tokio::test]
async fn a_query_is_read_as_strictly_as_a_body() {
    let test = Test::start().await;
    let client = test.client();
    for (query, code, field) in [
        ("leases/list?limit=0", "limit_out_of_range", "limit"),
        ("leases/list?limit=501", "limit_out_of_range", "limit"),
        ("leases/list?limit=ten", "limit_invalid", "limit"),
        ("leases/list?status=gone", "status_invalid", "status"),
        ("leases/list?sort=colour", "sort_invalid", "sort"),
        ("leases/list?colour=red", "unknown_field", "colour"),
        ("leases/list?owner=a&owner=b", "owner_invalid", "owner"),
        ("leases/get", "lease_key_invalid", "lease_key"),
        ("leases/history?lease_key=", "lease_key_invalid", "lease_key"),
        ("leases/validate?lease_key=k&fencing_token=0", "fencing_token_out_of_range", "fencing_token"),
    ] {
        let error = client.get(&format!("/api/v1/{query}")).await.refused(422, code);
        assert_eq!(error["field"], field, "{query}");
    }
    client.get("/api/v1/leases/get?lease_key=%FF").await.refused(400, "malformed");
    client.take("a/b c+d\u{e9}", "w").await;
    let key = client.get("/api/v1/leases/get?lease_key=a%2Fb+c%2Bd%C3%A9").await.ok();
    assert_eq!(key["lease_key"], "a/b c+d\u{e9}");
    // NFC makes one key of two spellings.
    client.post("leases/acquire", json!({"lease_key": "a/b c+de\u{301}", "owner": "x"})).await.refused(409, "held");
}

#[tokio::test]
async fn paths_and_methods_are_told_in_json() {
    let test = Test::start().await;
    let client = test.client();
    for path in
        ["/api", "/api/v1", "/api/v1/", "/api/v1/leases", "/api/v1/leases/steal", "/api/v2/leases/get", "/nothing"]
    {
        client.get(path).await.refused(404, "not_found");
        Answer::of(client.request(Method::POST, path).send().await.unwrap()).await.refused(404, "not_found");
    }
    for (method, path, allowed) in [
        (Method::GET, "/api/v1/leases/acquire", &["POST"][..]),
        (Method::PUT, "/api/v1/leases/list", &["GET", "POST"]),
        (Method::DELETE, "/api/v1/leases/break", &["POST"]),
        (Method::POST, "/api/v1/events", &["GET"]),
        (Method::POST, "/metrics", &["GET"]),
        (Method::POST, "/healthz", &["GET"]),
        (Method::GET, "/sign-out", &["POST"]),
        (Method::POST, "/", &["GET"]),
    ] {
        let answer = Answer::of(client.request(method.clone(), path).send().await.unwrap()).await;
        let allow = answer.header("allow").unwrap_or_default().to_owned();
        assert_eq!(
            (answer.status.as_u16(), &answer.body["code"]),
            (405, &json!("method_not_allowed")),
            "{method} {path}"
        );
        for method in allowed {
            assert!(allow.split(',').any(|name| name.trim() == *method), "{path}: {allow}");
        }
    }
}

#[tokio::test]
async fn a_caller_of_the_api_never_gets_html_or_a_redirect() {
    let test = Test::start().await;
    let client = test.client();
    for body in [json!({"lease_key": "k", "owner": "w"}), json!({"lease_key": "k", "owner": "x"}), json!({})] {
        let request = client.request(Method::POST, "/api/v1/leases/acquire").header("Accept", "text/html,*/*");
        let answer = Answer::of(request.header("Referer", &test.url).json(&body).send().await.unwrap()).await;
        assert!(!answer.status.is_redirection(), "{:?}", answer.status);
        assert_eq!(answer.header("content-type"), Some(JSON));
        assert_eq!(answer.header("location"), None);
    }
    let request = client.request(Method::GET, "/nothing").header("Accept", "text/html");
    Answer::of(request.send().await.unwrap()).await.refused(404, "not_found");
    let request = test.stranger().request(Method::GET, "/api/v1/nothing").header("Accept", "text/html");
    Answer::of(request.send().await.unwrap()).await.refused(404, "not_found");
    for path in ["/", "/core/audit", "/core/leases/k"] {
        let request = test.stranger().request(Method::GET, path).header("Accept", "application/json");
        Answer::of(request.send().await.unwrap()).await.refused(401, "unauthenticated");
        let request = client.request(Method::GET, path).header("Accept", "application/json");
        Answer::of(request.send().await.unwrap()).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn only_so_many_large_bodies_are_held_at_once() {
    let test = Test::start().await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(test.server.address()).await.unwrap();
        let head = format!(
            "POST /api/v1/leases/get HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n\
             content-length: 100000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    let large = format!("{{\"lease_key\":\"k\",\"owner\":\"{}\"}}", "w".repeat(70_000));
    crate::support::until("large bodies are turned away", async || {
        let answer = test.client().raw("leases/acquire", JSON, large.clone()).await;
        answer.status == 503 && answer.body["code"] == "overloaded" && answer.header("retry-after").is_some()
    })
    .await;
    // Small ones pass.
    test.client().take("k", "w").await;
    drop(held);
    crate::support::until("there is room again", async || {
        test.client().raw("leases/acquire", JSON, large.clone()).await.status == 422
    })
    .await;
}

#[tokio::test]
async fn what_is_no_http_is_answered_or_dropped_and_harms_nobody() {
    let test = Test::start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(test.server.address()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    }
    test.client().take("k", "w").await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_not_waited_for_for_ever() {
    let test = Test::start().await;
    let mut stream = TcpStream::connect(test.server.address()).await.unwrap();
    let head = format!(
        "POST /api/v1/leases/get HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: {JSON}\r\n\
         Content-Length: 100\r\n\r\n{{\"lease_key\":"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"timed_out\""), "{answer}");
}
