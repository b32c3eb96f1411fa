//! Who may do what.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{self, ADMIN, Answer, Test, members};

/// Every operation, the least role that may do it, and a request that goes through or is refused by a rule.
fn operations() -> Vec<(&'static str, &'static str, Value)> {
    let id = "ls_00000000001";
    vec![
        ("counters/get", "viewer", json!({})),
        ("meta/get", "viewer", json!({})),
        ("sessions/current", "viewer", json!({})),
        ("leases/get", "viewer", json!({"lease_key": "a/k"})),
        ("counters/trend", "viewer", json!({})),
        ("timeline/list", "viewer", json!({})),
        ("records/find", "viewer", json!({"prefix": "a"})),
        ("leases/inspect", "viewer", json!({"lease_key": "a/k"})),
        ("leases/attend", "viewer", json!({"lease_key": "a/k", "lease_id": id})),
        ("leases/list", "viewer", json!({})),
        ("leases/history", "viewer", json!({"lease_key": "a/k"})),
        ("leases/validate", "viewer", json!({"lease_key": "a/k", "fencing_token": 1})),
        ("leases/acquire", "worker", json!({"lease_key": "a/k", "owner": "w"})),
        ("leases/renew", "worker", json!({"lease_key": "a/k", "lease_id": id})),
        ("leases/release", "worker", json!({"lease_key": "a/k", "lease_id": id})),
        ("leases/acquire-many", "worker", json!({"owner": "w", "leases": [{"lease_key": "a/k"}]})),
        ("leases/batch", "worker", json!({"operations": [{"acquire": {"lease_key": "a/k", "owner": "w"}}]})),
        ("leases/transfer", "operator", json!({"lease_key": "a/k", "lease_id": id, "to_owner": "x"})),
        ("leases/break", "operator", json!({"lease_key": "a/k", "reason": "r"})),
        ("leases/quarantine", "operator", json!({"lease_key": "a/k", "reason": "r"})),
        ("leases/lift", "operator", json!({"lease_key": "a/k", "reason": "r"})),
        ("tokens/list", "admin", json!({})),
        ("tokens/create", "admin", json!({"name": "n", "role": "viewer"})),
        ("tokens/revoke", "admin", json!({"token_id": "tk_none"})),
    ]
}

const ROLES: [&str; 4] = ["viewer", "worker", "operator", "admin"];

#[tokio::test]
async fn each_operation_needs_its_role_and_no_more() {
    let test = Test::start().await;
    let described = test.client().get("/api/v1/openapi.json").await.ok();
    let paths = members(&described["paths"]).len() - 1;
    assert_eq!(operations().len(), paths, "every operation but the event stream is here");
    for role in ROLES {
        let client = test.limited(role, &[]).await;
        assert_eq!(client.post("sessions/current", json!({})).await.ok()["role"], role);
        for (operation, needed, request) in operations() {
            let may = ROLES.iter().position(|name| *name == role) >= ROLES.iter().position(|name| *name == needed);
            let answer = client.post(operation, request).await;
            if may {
                assert!(!matches!(answer.status.as_u16(), 401 | 403), "{role} {operation}: {}", answer.body);
            } else {
                answer.refused(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn nobody_does_anything_without_showing_who_they_are() {
    let test = Test::start().await;
    let stranger = test.stranger();
    let wrong = test.client_with("jl_wrong");
    for (operation, _, request) in operations() {
        stranger.post(operation, request.clone()).await.refused(401, "unauthenticated");
        wrong.post(operation, request).await.refused(401, "unauthenticated");
        // Nor is their request looked at.
        stranger.post(operation, json!({"nonsense": 1})).await.refused(401, "unauthenticated");
    }
    for path in ["/api/v1/leases/list", "/api/v1/events", "/metrics"] {
        stranger.get(path).await.refused(401, "unauthenticated");
        wrong.get(path).await.refused(401, "unauthenticated");
    }
    let basic = stranger.request(Method::GET, "/api/v1/leases/list").header("Authorization", "Basic YTpi");
    Answer::of(basic.send().await.unwrap()).await.refused(401, "unauthenticated");
    let two = test.client().request(Method::GET, "/api/v1/leases/list").header("Cookie", "job_leases_session=x");
    Answer::of(two.send().await.unwrap()).await.refused(400, "two_credentials");
    // What says nothing is open.
    for path in ["/healthz", "/readyz", "/api/v1/openapi.json"] {
        stranger.get(path).await.ok();
    }
}

#[tokio::test]
async fn a_token_that_is_limited_to_prefixes_sees_and_touches_nothing_else() {
    let test = Test::start().await;
    let admin = test.client();
    let limited = test.limited("operator", &["a/", "shared"]).await;
    let other = admin.take("b/1", "w").await;
    admin.take("shared-1", "w").await;
    limited.take("a/1", "w").await;
    let id = &other["lease_id"];
    for key in ["b/1", "b/never"] {
        for (operation, request) in [
            ("leases/get", json!({"lease_key": key})),
            ("leases/history", json!({"lease_key": key})),
            ("leases/validate", json!({"lease_key": key, "fencing_token": 1})),
            ("leases/acquire", json!({"lease_key": key, "owner": "w"})),
            ("leases/renew", json!({"lease_key": key, "lease_id": id})),
            ("leases/release", json!({"lease_key": key, "lease_id": id})),
            ("leases/transfer", json!({"lease_key": key, "lease_id": id, "to_owner": "x"})),
            ("leases/break", json!({"lease_key": key, "reason": "r"})),
            ("leases/quarantine", json!({"lease_key": key, "reason": "r"})),
            ("leases/lift", json!({"lease_key": key, "reason": "r"})),
            ("leases/acquire-many", json!({"owner": "w", "leases": [{"lease_key": "a/2"}, {"lease_key": key}]})),
            (
                "leases/batch",
                json!({"operations": [{"acquire": {"lease_key": "a/2", "owner": "w"}}, {"release": {"lease_key": key, "lease_id": id}}]}),
            ),
        ] {
            let mut error = limited.post(operation, request).await.refused(403, "forbidden");
            // The same word for what exists and what does not.
            error["request_id"] = Value::Null;
            assert_eq!(error["message"], "this token is limited to other keys", "{operation} {key}");
        }
    }
    limited.post("leases/get", json!({"lease_key": "a/2"})).await.refused(404, "lease_key_unknown");
    let keys = |page: Value| {
        page["items"].as_array().unwrap().iter().map(|lease| lease["lease_key"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(limited.post("leases/list", json!({})).await.ok()), ["a/1", "shared-1"]);
    assert_eq!(keys(limited.post("leases/list", json!({"prefix": "b/"})).await.ok()), [] as [&str; 0]);
    assert_eq!(keys(limited.post("leases/list", json!({"prefix": "a"})).await.ok()), ["a/1"]);
    let counters = limited.post("counters/get", json!({})).await.ok();
    assert_eq!((&counters["keys"], &counters["held"]), (&json!(2), &json!(2)));
    assert_eq!((&counters["waiting"], &counters["grants"]), (&Value::Null, &Value::Null));
    limited.get("/metrics").await.refused(403, "forbidden");
    // An administrator of some keys does not manage tokens: it could make one that is not limited.
    let some = test.limited("admin", &["a/"]).await;
    some.post("tokens/create", json!({"name": "x", "role": "admin"})).await.refused(403, "forbidden");
    some.post("tokens/list", json!({})).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_token_is_shown_once_listed_without_its_secret_and_revoked_for_good() {
    let test = Test::start().await;
    let admin = test.client();
    let made = admin.post("tokens/create", json!({"name": "ci", "role": "worker", "prefixes": ["ci/"]})).await.ok();
    let names =
        ["created_at", "expires_at", "name", "prefixes", "revoked_at", "role", "server_time", "token", "token_id"];
    assert_eq!(members(&made), names);
    let secret = made["token"].as_str().unwrap();
    assert_eq!((&secret[..3], secret.len()), ("jl_", 46));
    let listed = admin.post("tokens/list", json!({})).await.ok();
    assert!(!listed.to_string().contains(&secret[3..]) && !listed.to_string().contains(&ADMIN[3..]));
    assert_eq!(listed["items"][0]["name"], "ci");
    let first = admin.get("/api/v1/tokens/list?limit=1").await.ok();
    let rest = admin.post("tokens/list", json!({"limit": 1, "cursor": first["next"]})).await.ok();
    assert_eq!((&rest["items"][0]["name"], &rest["next"]), (&json!("bootstrap"), &Value::Null));
    admin.post("tokens/list", json!({"cursor": "x"})).await.refused(422, "cursor_invalid");

    let client = test.client_with(secret);
    client.take("ci/1", "w").await;
    let revoke = json!({"token_id": made["token_id"]});
    let revoked = admin.post("tokens/revoke", revoke.clone()).await.ok();
    assert!(revoked["revoked_at"].is_string());
    client.post("leases/get", json!({"lease_key": "ci/1"})).await.refused(401, "unauthenticated");
    assert_eq!(admin.post("tokens/revoke", revoke).await.ok(), revoked);
    admin.post("tokens/revoke", json!({"token_id": "tk_never"})).await.refused(404, "token_unknown");
}

#[tokio::test]
async fn a_token_stops_working_at_its_expiry() {
    let test = Test::start().await;
    let soon = domain::Timestamp::from_micros(test.server.engine().now().as_micros() + 4_000_000);
    let made =
        test.client().post("tokens/create", json!({"name": "t", "role": "viewer", "expires_at": soon})).await.ok();
    let client = test.client_with(made["token"].as_str().unwrap());
    client.post("meta/get", json!({})).await.ok();
    support::until("it has stopped", async || client.post("meta/get", json!({})).await.status == 401).await;
    assert!(test.server.engine().now() >= soon, "not before");
}

/// Signs in and gives the cookie, or the status if that was refused.
async fn sign_in(test: &Test, form: &[(&str, &str)]) -> Result<(String, String), StatusCode> {
    let stranger = test.stranger();
    let request = stranger.request(Method::POST, "/sign-in").header("Origin", &test.url);
    let request = support::form(request, form);
    let response = request.send().await.unwrap();
    if response.status() != StatusCode::SEE_OTHER {
        return Err(response.status());
    }
    let set = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Lax") && set.contains("Path=/"), "{set}");
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    Ok((set.split(';').next().unwrap().to_owned(), location))
}

#[tokio::test]
async fn a_link_signs_in_once_and_looking_at_it_uses_nothing_up() {
    let test = Test::with(|config| config.bootstrap_token = None).await;
    let link = test.server.sign_in_link().unwrap().to_owned();
    for _ in 0..2 {
        let page = test.stranger().get(&format!("/sign-in?link={link}")).await;
        assert_eq!(page.status, 200);
        assert!(page.body.as_str().unwrap().contains("method=\"post\""));
        assert!(page.header("content-security-policy").unwrap().contains("form-action 'self'"));
    }
    // Not from another site.
    let forged = test.stranger().request(Method::POST, "/sign-in").header("Origin", "https://evil.example");
    let forged = support::form(forged, &[("link", &link)]);
    Answer::of(forged.send().await.unwrap()).await.refused(403, "origin_refused");
    let (cookie, location) = sign_in(&test, &[("link", &link), ("next", "/?status=held")]).await.unwrap();
    assert_eq!(location, "/?status=held");
    assert_eq!(sign_in(&test, &[("link", &link)]).await, Err(StatusCode::UNAUTHORIZED));

    let ask = async || {
        let request = test.stranger().request(Method::GET, "/api/v1/sessions/current").header("Cookie", &cookie);
        Answer::of(request.send().await.unwrap()).await
    };
    let session = ask().await.ok();
    assert_eq!((&session["kind"], &session["role"]), (&json!("session"), &json!("admin")));
    assert_eq!(members(&session), ["expires_at", "id", "kind", "name", "prefixes", "role", "server_time"]);
    let out = test.stranger().request(Method::POST, "/sign-out").header("Cookie", &cookie).header("Origin", &test.url);
    let out = out.send().await.unwrap();
    assert_eq!(out.status(), 303);
    assert!(out.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    ask().await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn a_session_has_the_rights_of_its_token_and_ends_with_it() {
    let test = Test::start().await;
    let made =
        test.client().post("tokens/create", json!({"name": "dora", "role": "viewer", "prefixes": ["a/"]})).await.ok();
    let secret = made["token"].as_str().unwrap();
    assert_eq!(sign_in(&test, &[("token", "jl_wrong")]).await, Err(StatusCode::UNAUTHORIZED));
    assert_eq!(sign_in(&test, &[]).await, Err(StatusCode::UNPROCESSABLE_ENTITY));
    let (cookie, location) = sign_in(&test, &[("token", secret), ("next", "//evil.example/")]).await.unwrap();
    assert_eq!(location, "/", "never to another site");
    // A session's secret is not a token's.
    let inner = cookie.split('=').nth(1).unwrap();
    assert_eq!(sign_in(&test, &[("token", inner)]).await, Err(StatusCode::UNAUTHORIZED));
    let ask = async |operation: &str, body: Value| {
        let request = test.stranger().request(Method::POST, &format!("/api/v1/{operation}"));
        let request = request.header("Cookie", &cookie).header("Sec-Fetch-Site", "same-origin").json(&body);
        Answer::of(request.send().await.unwrap()).await
    };
    let session = ask("sessions/current", json!({})).await.ok();
    assert_eq!(
        (&session["name"], &session["role"], &session["prefixes"]),
        (&json!("dora"), &json!("viewer"), &json!(["a/"]))
    );
    ask("leases/acquire", json!({"lease_key": "a/1", "owner": "w"})).await.refused(403, "forbidden");
    ask("leases/get", json!({"lease_key": "b/1"})).await.refused(403, "forbidden");
    test.client().post("tokens/revoke", json!({"token_id": made["token_id"]})).await.ok();
    ask("sessions/current", json!({})).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn a_signed_in_browser_changes_things_from_our_own_pages_only() {
    let test = Test::start().await;
    let (cookie, _) = sign_in(&test, &[("token", ADMIN)]).await.unwrap();
    let send = async |name: &str, value: &str| {
        let request = test.stranger().request(Method::POST, "/api/v1/leases/acquire").header("Cookie", &cookie);
        let request = request.header(name, value).json(&json!({"lease_key": "k", "owner": "w"}));
        Answer::of(request.send().await.unwrap()).await
    };
    for (name, value) in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("X-Nothing", "at all"),
    ] {
        send(name, value).await.refused(403, "origin_refused");
    }
    send("Origin", &test.url).await.ok();
    send("Sec-Fetch-Site", "same-origin").await.refused(409, "held");
    // Reading needs no such word.
    let read = test.stranger().request(Method::GET, "/api/v1/leases/list").header("Cookie", &cookie);
    Answer::of(read.send().await.unwrap()).await.ok();
}

#[tokio::test]
async fn a_caller_whose_token_is_revoked_while_it_waits_is_granted_nothing() {
    let test = Test::start().await;
    let admin = test.client();
    let made = admin.post("tokens/create", json!({"name": "late", "role": "worker"})).await.ok();
    let lease = admin.take("k", "first").await;
    let waiting = |client: crate::support::Client, owner: &str| {
        let body = json!({"lease_key": "k", "owner": owner, "wait_ms": 60_000});
        tokio::spawn(async move { client.post("leases/acquire", body).await })
    };
    let late = waiting(test.client_with(made["token"].as_str().unwrap()), "late");
    let queue = async || admin.post("leases/get", json!({"lease_key": "k"})).await.ok()["queue_length"].clone();
    support::until("it waits", async || queue().await == 1).await;
    let next = waiting(test.client(), "next");
    support::until("both wait", async || queue().await == 2).await;
    admin.post("tokens/revoke", json!({"token_id": made["token_id"]})).await.ok();
    admin.post("leases/release", json!({"lease_key": "k", "lease_id": lease["lease_id"]})).await.ok();
    assert_eq!(next.await.unwrap().ok()["owner"], "next");
    late.await.unwrap().refused(401, "unauthenticated");
}

#[tokio::test]
async fn a_secret_is_good_only_as_what_it_is() {
    let test = Test::start().await;
    let (cookie, _) = sign_in(&test, &[("token", ADMIN)]).await.unwrap();
    let session = cookie.split('=').nth(1).unwrap();
    test.client_with(session).get("/api/v1/leases/list").await.refused(401, "unauthenticated");
    let as_session = test.stranger().request(Method::GET, "/api/v1/leases/list");
    let as_session = as_session.header("Cookie", format!("job_leases_session={ADMIN}"));
    Answer::of(as_session.send().await.unwrap()).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn strangers_take_up_no_room() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let test = Test::start().await;
    let address = test.url.strip_prefix("http://").unwrap().to_owned();
    // Bodies of unknown length that never come: more than the large bodies that there is room for.
    let mut stalled = Vec::new();
    for n in 0..80 {
        let path = if n % 2 == 0 { "/sign-in" } else { "/api/v1/leases/acquire" };
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        if n % 2 == 1 {
            // Refused before anything of the body is read.
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 401");
        }
        stalled.push(stream);
    }
    let body = format!("{{\"lease_key\": \"k\", {} \"owner\": \"w\"}}", " ".repeat(100_000));
    test.client().raw("leases/acquire", "application/json", body).await.ok();
}

#[tokio::test]
async fn the_prefixes_of_a_token_fit_into_a_line_of_the_timeline() {
    let test = Test::start().await;
    let prefixes = |count: usize| (0..count).map(|n| format!("{}{n:02}", "\\".repeat(510))).collect::<Vec<_>>();
    let create = |count| json!({"name": "t", "role": "worker", "prefixes": prefixes(count)});
    test.client().post("tokens/create", create(32)).await.ok();
    test.client().post("tokens/create", create(33)).await.refused(422, "prefixes_out_of_range");
}
