//! `/api/v1/openapi.json`: the API described, from the table by which it is routed.

use std::collections::BTreeMap;

use app::api::error::{CODES, status_of};
use serde_json::{Map, Value, json};

use super::operations::{OPERATIONS, Operation};
use super::schemas;

/// Where it is.
pub(super) const PATH: &str = "/api/v1/openapi.json";

/// Codes that any operation may answer.
const COMMON: &[&str] = &[
    "malformed",
    "two_credentials",
    "unauthenticated",
    "forbidden",
    "unknown_field",
    "overloaded",
    "stopping",
    "unavailable",
];
/// Codes that only bodies bring.
const OF_BODIES: &[&str] = &["timed_out", "too_large", "unsupported_media_type"];
/// Codes that only changes bring.
const OF_CHANGES: &[&str] = &["origin_refused", "idempotency_in_progress", "idempotency_mismatch"];

/// The document.
pub(super) fn document() -> Value {
    let mut schemas = schemas::all();
    let mut paths: Map<String, Value> = OPERATIONS
        .iter()
        .map(|operation| {
            let mut methods = Map::new();
            methods.insert("post".to_owned(), describe(operation, &schemas, true));
            if !operation.changes {
                methods.insert("get".to_owned(), describe(operation, &schemas, false));
            }
            (operation.path.to_owned(), Value::Object(methods))
        })
        .collect();
    paths.insert(app::api::live::PATH.to_owned(), json!({"get": events()}));
    schemas["Error"]["properties"]["code"]["description"] = json!(format!(
        "What programs decide by: {}, `<field>_invalid` or `<field>_out_of_range`.",
        CODES.iter().map(|(code, _)| format!("`{code}`")).collect::<Vec<_>>().join(", "),
    ));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Job Leases",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Grants each piece of work to one owner at a time, for a bounded time.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token, `jl_...`."},
                "session": {"type": "apiKey", "in": "cookie", "name": super::authenticate::COOKIE,
                    "description": "A signed-in browser. Changes are checked for origin."},
            },
        },
    })
}

fn describe(operation: &Operation, schemas: &Value, by_post: bool) -> Value {
    let id = operation.path.trim_start_matches("/api/v1/").replace(['/', '-'], "_");
    let id = if by_post { id } else { format!("{id}_by_query") };
    let role = operation.role.as_str();
    let mut described = json!({
        "operationId": id,
        "summary": operation.summary,
        "description": format!("Needs the role {role}."),
        "tags": [operation.path.split('/').nth(3).unwrap_or_default()],
        "responses": responses(operation, by_post),
    });
    if by_post {
        let schema = json!({"$ref": format!("#/components/schemas/{}", operation.request)});
        described["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
        if operation.changes {
            described["parameters"] = json!([{
                "name": "Idempotency-Key", "in": "header", "required": false,
                "description": "The same key and request again changes nothing more and brings the stored answer.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }]);
        }
    } else {
        described["parameters"] = parameters(&schemas[operation.request]);
    }
    described
}

/// The fields of a request as parameters of a query.
fn parameters(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    fields
        .into_iter()
        .map(|(name, schema)| {
            let is_required = required.iter().any(|required| *required == json!(name));
            json!({"name": name, "in": "query", "required": is_required, "schema": schema})
        })
        .collect()
}

fn responses(operation: &Operation, by_post: bool) -> Value {
    let mut codes: Vec<&str> = COMMON.iter().chain(operation.refusals).copied().collect();
    if by_post {
        codes.extend(OF_BODIES);
    }
    if operation.changes {
        codes.extend(OF_CHANGES);
    }
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in codes {
        by_status.entry(status_of(code)).or_default().push(code);
    }
    by_status.entry(422).or_default().extend(["<field>_invalid", "<field>_out_of_range"]);
    let answer = json!({"$ref": format!("#/components/schemas/{}", operation.answer)});
    let mut responses = json!({"200": {"description": "Done.", "content": {"application/json": {"schema": answer}}}});
    if operation.changes {
        responses["200"]["headers"] = json!({"Idempotency-Replayed": {
            "description": "`true` if this is the stored answer of an earlier request.", "schema": {"type": "string"},
        }});
    }
    for (status, codes) in by_status {
        responses[status.to_string()] = json!({
            "description": codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", "),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        });
    }
    responses
}

fn events() -> Value {
    let error = |codes: &str| {
        json!({
            "description": codes, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        })
    };
    json!({
        "operationId": "events",
        "summary": "Follow the timeline",
        "description": "Server-sent events in timeline order, without gap or duplicate, from `Last-Event-ID` or from now. \
            Needs the role viewer.",
        "tags": ["events"],
        "parameters": [
            {"name": "prefix", "in": "query", "required": false, "description": "Keys that begin so.", "schema": {"type": "string"}},
            {"name": "last_event_id", "in": "query", "required": false, "description": "As the header, for clients that cannot send it.", "schema": {"type": "string"}},
            {"name": "Last-Event-ID", "in": "header", "required": false, "description": "The id of the last event received.", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            "401": error("`unauthenticated`"),
            "410": error("`compacted`: the id is too old, or from before a restore"),
            "422": error("`last_event_id_invalid`, `prefix_invalid`, `unknown_field`"),
            "503": error("`overloaded`, `stopping`, `unavailable`"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` in the document.
    fn references(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    into.push(reference.clone());
                }
                members.values().for_each(|value| references(value, into));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, into)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for reference in &found {
            assert!(schemas.contains_key(reference.trim_start_matches("#/components/schemas/")), "{reference}");
        }
        for name in schemas.keys() {
            assert!(found.iter().any(|reference| reference.ends_with(&format!("/{name}"))), "{name} is not used");
        }
    }

    #[test]
    fn every_code_of_the_table_has_a_status_of_its_own_kind() {
        for operation in OPERATIONS {
            for code in operation.refusals {
                assert!((400..500).contains(&status_of(code)), "{code}");
            }
        }
    }
}
