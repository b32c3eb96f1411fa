//! All leases that a filter finds, as a file.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Test};

async fn file(client: &Client, path: &str) -> (Answer, String) {
    let response = client.request(Method::GET, path).send().await.unwrap();
    let answer = Answer::of(response).await;
    let text = match &answer.body {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (answer, text)
}

#[tokio::test]
async fn all_that_a_filter_finds_is_in_the_file_however_many_pages_that_is() {
    let test = Test::start().await;
    let client = test.client();
    for from in (0..1_200).step_by(300) {
        let acquire =
            |n: i32| json!({"acquire": {"lease_key": format!("many/{n:04}"), "owner": "w", "ttl_ms": 600_000}});
        let operations: Vec<Value> = (from..from + 300).map(acquire).collect();
        client.post("leases/batch", json!({"operations": operations})).await.ok();
    }
    test.client().post("leases/acquire", json!({"lease_key": "other", "owner": "w"})).await.ok();
    let (answer, text) = file(&client, "/core/export/leases.csv?q=key%3Amany%2F*").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-type")),
        (200, Some("text/csv; charset=utf-8; header=present"))
    );
    assert!(answer.header("content-disposition").unwrap().starts_with("attachment; filename=\"leases-20"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(lines[0].starts_with("lease_key,job_key,owner,status,fencing_token,"));
    assert_eq!(lines.len(), 1_202, "a head, and the end of the last line");
    for (n, line) in lines[1..1_201].iter().enumerate() {
        assert!(line.starts_with(&format!("many/{n:04},,w,held,")), "{line}");
    }
    let (answer, _) = file(&client, "/core/export/leases.json").await;
    let leases = answer.ok();
    let keys: Vec<&str> = leases.as_array().unwrap().iter().map(|lease| lease["lease_key"].as_str().unwrap()).collect();
    assert_eq!((keys.len(), keys[1_200], keys.is_sorted()), (1_201, "other", true));
    let (answer, _) = file(&client, "/core/export/leases.json?q=owner%3Anobody").await;
    assert_eq!(answer.ok(), json!([]));
}

#[tokio::test]
async fn of_leases_that_ended_every_one_is_in_the_file_and_not_only_the_last_of_its_key() {
    let test = Test::start().await;
    let client = test.client();
    for _ in 0..2 {
        let acquire = |n: i32| json!({"acquire": {"lease_key": format!("k{n}"), "owner": "w"}});
        let taken =
            client.post("leases/batch", json!({"operations": (0..300).map(acquire).collect::<Vec<_>>()})).await.ok();
        let release = |result: &Value| {
            let lease = &result["ok"];
            json!({"release": {"lease_key": lease["lease_key"], "lease_id": lease["lease_id"]}})
        };
        let releases: Vec<Value> = taken["results"].as_array().unwrap().iter().map(release).collect();
        client.post("leases/batch", json!({"operations": releases})).await.ok();
    }
    let (answer, _) = file(&client, "/core/export/leases.json?q=status%3Areleased").await;
    let leases = answer.ok();
    let tokens: Vec<u64> =
        leases.as_array().unwrap().iter().map(|one| one["fencing_token"].as_u64().unwrap()).collect();
    assert_eq!((tokens.len(), tokens.is_sorted_by(|earlier, later| earlier < later)), (600, true));
}

#[tokio::test]
async fn no_name_is_a_formula_in_a_spreadsheet() {
    let test = Test::start().await;
    let request = json!({"lease_key": "=HYPERLINK(\"x\")", "owner": "@SUM(A1)", "job_key": "+1", "subjects": ["a:b", "c:d e"],
        "metadata": {"note": "say, \"so\""}});
    test.client().post("leases/acquire", request).await.ok();
    let (_, text) = file(&test.client(), "/core/export/leases.csv").await;
    let line = text.lines().nth(1).unwrap();
    assert!(line.starts_with("\"'=HYPERLINK(\"\"x\"\")\",'+1,'@SUM(A1),held,"), "{line}");
    assert!(line.ends_with(",0,a:b c:d e,\"{\"\"note\"\":\"\"say, \\\"\"so\\\"\"\"\"}\""), "{line}");
}

#[tokio::test]
async fn a_file_tells_nobody_more_than_a_list_would() {
    let test = Test::start().await;
    for key in ["a/x", "b/x"] {
        test.client().post("leases/acquire", json!({"lease_key": key, "owner": "w"})).await.ok();
    }
    let limited = test.limited("viewer", &["a/"]).await;
    let (answer, _) = file(&limited, "/core/export/leases.json").await;
    let leases = answer.ok();
    assert_eq!((leases.as_array().unwrap().len(), &leases[0]["lease_key"]), (1, &json!("a/x")));
    file(&test.stranger(), "/core/export/leases.csv").await.0.refused(401, "unauthenticated");
    file(&test.client(), "/core/export/leases.csv?q=colour%3Ared").await.0.refused(422, "q_invalid");
    file(&test.client(), "/core/export/leases.xls").await.0.refused(404, "not_found");
}
