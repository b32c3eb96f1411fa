//! What schemas are put together from.

use serde_json::{Map, Value, json};

pub(super) const TIME: &str = "RFC 3339 in UTC with microseconds and `Z`";

/// A field: its name, whether it must be there, and its schema.
pub(super) type Field = (&'static str, bool, Value);

pub(super) fn object(about: &str, closed: bool, fields: Vec<Field>) -> Value {
    let required: Vec<&str> = fields.iter().filter(|(_, required, _)| *required).map(|(name, ..)| *name).collect();
    let properties: Map<String, Value> =
        fields.into_iter().map(|(name, _, schema)| (name.to_owned(), schema)).collect();
    let mut schema = json!({"type": "object", "description": about, "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if closed {
        schema["additionalProperties"] = json!(false);
    }
    schema
}

pub(super) fn request(about: &str, fields: Vec<Field>) -> Value {
    object(about, true, fields)
}

pub(super) fn answer(about: &str, fields: Vec<Field>) -> Value {
    object(about, false, fields)
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn list(items: Value, most: usize, about: &str) -> Value {
    json!({"type": "array", "items": items, "maxItems": most, "description": about})
}

pub(super) fn array(items: Value, about: &str) -> Value {
    json!({"type": "array", "items": items, "description": about})
}

pub(super) fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

pub(super) fn name(most: usize, about: &str) -> Value {
    let rule = "UTF-8 after NFC, no control character, no white space at either end";
    json!({"type": "string", "minLength": 1, "maxLength": most, "description": format!("{about} At most {most} bytes of {rule}.")})
}

pub(super) fn one_of(values: &[&str], about: &str) -> Value {
    json!({"type": "string", "enum": values, "description": about})
}

pub(super) fn millis(about: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "description": format!("{about} Whole milliseconds.")})
}

pub(super) fn whole(about: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "description": about})
}

pub(super) fn time(about: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": format!("{about} {TIME}.")})
}

pub(super) fn or_null(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({"oneOf": [schema, {"type": "null"}]});
    }
    schema["type"] = json!([schema["type"].clone(), "null"]);
    schema
}

pub(super) fn lease_key() -> Value {
    name(512, "What must not collide.")
}

pub(super) fn lease_id() -> Value {
    json!({"type": "string", "pattern": "^ls_[0-9a-hjkmnp-tv-z]{11}$", "description": "Names one grant. Not a secret."})
}

pub(super) fn fencing_token() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 1, "maximum": 9_007_199_254_740_991_u64,
        "description": "Strictly greater with every later grant of the key."})
}

pub(super) fn owner() -> Value {
    name(256, "Who asks for the lease.")
}

pub(super) fn reason() -> Value {
    name(1024, "Why. It stands in the timeline.")
}

pub(super) fn subject() -> Value {
    json!({"type": "string", "maxLength": 256, "pattern": "^[a-z0-9_-]{1,64}:.+$", "description": "`kind:id`, such as `customer:acme`."})
}

pub(super) fn metadata() -> Value {
    json!({"type": "object", "description": "What the owner wants kept: at most 4 KiB of JSON."})
}

pub(super) fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 500, "default": 100, "description": "The most items of the page."})
}

pub(super) fn cursor() -> Value {
    text("The `next` of the page before.")
}

pub(super) fn role() -> Value {
    one_of(&["viewer", "worker", "operator", "admin"], "Each may do what those before it may.")
}

pub(super) const STATUSES: [&str; 7] =
    ["held", "breaking", "released", "expired", "broken", "transferred", "undelivered"];

/// The terms that acquire and acquire-many share.
pub(super) fn terms() -> Vec<Field> {
    vec![
        ("lease_key", true, lease_key()),
        ("job_key", false, name(512, "The job it is for.")),
        ("ttl_ms", false, millis("From the grant to expiry; the rules' default if absent, and never 0.")),
        ("min_hold_ms", false, millis("After a release the key cools until this long after the grant; 0 is none.")),
        ("max_hold_ms", false, millis("No renewal goes further than this from the grant; never 0.")),
        ("lock_delay_ms", false, millis("How long the key cools after the lease expired or was broken; 0 is none.")),
        ("subjects", false, list(subject(), 16, "What it concerns.")),
        ("metadata", false, metadata()),
    ]
}

pub(super) fn lease() -> Vec<Field> {
    vec![
        ("lease_id", true, lease_id()),
        ("lease_key", true, lease_key()),
        ("job_key", true, or_null(text("The job it is for."))),
        ("owner", true, owner()),
        ("status", true, one_of(&STATUSES, "What it is at `server_time`.")),
        ("fencing_token", true, fencing_token()),
        ("acquired_at", true, time("When it was granted.")),
        ("expires_at", true, time("When it ends, or ended.")),
        ("updated_at", true, time("Its last change.")),
        ("ttl_remaining_ms", true, millis("Until expiry, rounded down; 0 once it has ended.")),
        ("server_time", true, time("The server's time of this answer.")),
        ("renewals", true, whole("How often it was renewed.")),
        ("max_hold_until", true, or_null(time("No renewal goes past this."))),
        ("subjects", true, array(subject(), "What it concerns.")),
        ("metadata", true, metadata()),
    ]
}

pub(super) fn with(mut fields: Vec<Field>, more: Vec<Field>) -> Vec<Field> {
    fields.extend(more);
    fields
}

pub(super) fn token() -> Vec<Field> {
    vec![
        ("token_id", true, text("Its public id.")),
        ("name", true, text("What people know it by.")),
        ("role", true, role()),
        ("prefixes", true, array(text("A beginning of keys."), "The keys it is limited to; all if empty.")),
        ("created_at", true, time("When it was made.")),
        ("expires_at", true, or_null(time("When it stops working."))),
        ("revoked_at", true, or_null(time("When it was revoked."))),
    ]
}

pub(super) fn page(item: &str) -> Vec<Field> {
    vec![
        ("items", true, array(reference(item), "What is on the page.")),
        ("next", true, or_null(text("The `cursor` of the next page; `null` after the last."))),
        ("as_of", true, reference("AsOf")),
        ("server_time", true, time("The server's time; every status on the page is the one at this instant.")),
    ]
}
