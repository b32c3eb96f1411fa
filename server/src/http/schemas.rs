//! The shapes of requests and answers, as JSON Schema. A test asks every operation which fields it reads and holds them
//! against these.

use serde_json::{Map, Value, json};

const TIME: &str = "RFC 3339 in UTC with microseconds and `Z`";

/// A field: its name, whether it must be there, and its schema.
type Field = (&'static str, bool, Value);

fn object(about: &str, closed: bool, fields: Vec<Field>) -> Value {
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

fn request(about: &str, fields: Vec<Field>) -> Value {
    object(about, true, fields)
}

fn answer(about: &str, fields: Vec<Field>) -> Value {
    object(about, false, fields)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn list(items: Value, most: usize, about: &str) -> Value {
    json!({"type": "array", "items": items, "maxItems": most, "description": about})
}

fn array(items: Value, about: &str) -> Value {
    json!({"type": "array", "items": items, "description": about})
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn name(most: usize, about: &str) -> Value {
    let rule = "UTF-8 after NFC, no control character, no white space at either end";
    json!({"type": "string", "minLength": 1, "maxLength": most, "description": format!("{about} At most {most} bytes of {rule}.")})
}

fn one_of(values: &[&str], about: &str) -> Value {
    json!({"type": "string", "enum": values, "description": about})
}

fn millis(about: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "description": format!("{about} Whole milliseconds.")})
}

fn whole(about: &str) -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "description": about})
}

fn time(about: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": format!("{about} {TIME}.")})
}

fn or_null(mut schema: Value) -> Value {
    if schema.get("$ref").is_some() {
        return json!({"oneOf": [schema, {"type": "null"}]});
    }
    schema["type"] = json!([schema["type"].clone(), "null"]);
    schema
}

fn lease_key() -> Value {
    name(512, "What must not collide.")
}

fn lease_id() -> Value {
    json!({"type": "string", "pattern": "^ls_[0-9a-hjkmnp-tv-z]{11}$", "description": "Names one grant. Not a secret."})
}

fn fencing_token() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 1, "maximum": 9_007_199_254_740_991_u64,
        "description": "Strictly greater with every later grant of the key."})
}

fn owner() -> Value {
    name(256, "Who asks for the lease.")
}

fn reason() -> Value {
    name(1024, "Why. It stands in the timeline.")
}

fn subject() -> Value {
    json!({"type": "string", "maxLength": 256, "pattern": "^[a-z0-9_-]{1,64}:.+$", "description": "`kind:id`, such as `customer:acme`."})
}

fn metadata() -> Value {
    json!({"type": "object", "description": "What the owner wants kept: at most 4 KiB of JSON."})
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 500, "default": 100, "description": "The most items of the page."})
}

fn cursor() -> Value {
    text("The `next` of the page before.")
}

fn role() -> Value {
    one_of(&["viewer", "worker", "operator", "admin"], "Each may do what those before it may.")
}

const STATUSES: [&str; 7] = ["held", "breaking", "released", "expired", "broken", "transferred", "undelivered"];

/// The terms that acquire and acquire-many share.
fn terms() -> Vec<Field> {
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

fn lease() -> Vec<Field> {
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

fn with(mut fields: Vec<Field>, more: Vec<Field>) -> Vec<Field> {
    fields.extend(more);
    fields
}

fn token() -> Vec<Field> {
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

fn page(item: &str) -> Vec<Field> {
    vec![
        ("items", true, array(reference(item), "What is on the page.")),
        ("next", true, or_null(text("The `cursor` of the next page; `null` after the last."))),
        ("as_of", true, reference("AsOf")),
        ("server_time", true, time("The server's time; every status on the page is the one at this instant.")),
    ]
}

/// All of them, by name.
pub(super) fn all() -> Value {
    let mut schemas = Map::new();
    let mut add = |name: &str, schema: Value| schemas.insert(name.to_owned(), schema);
    requests(&mut add);
    answers(&mut add);
    Value::Object(schemas)
}

fn requests(add: &mut impl FnMut(&str, Value) -> Option<Value>) {
    add("Empty", request("Nothing is asked besides.", vec![]));
    let acquire = with(
        terms(),
        vec![
            ("owner", true, owner()),
            ("wait_ms", false, millis("How long to wait in the queue if the key is not free; 0 is not at all.")),
        ],
    );
    add("AcquireRequest", request("Take a lease.", acquire));
    add("OneOfMany", request("One lease of an acquire-many.", terms()));
    add(
        "AcquireManyRequest",
        request(
            "Take several leases, all or none; no key twice.",
            vec![
                ("owner", true, owner()),
                ("ttl_ms", false, millis("For those that name none of their own.")),
                ("leases", true, list(reference("OneOfMany"), 100, "Which.")),
            ],
        ),
    );
    add(
        "RenewRequest",
        request(
            "Keep a lease for longer.",
            vec![
                ("lease_key", true, lease_key()),
                ("lease_id", true, lease_id()),
                ("ttl_ms", false, millis("For how long from now; as last time if absent.")),
                (
                    "shorten",
                    false,
                    json!({"type": "boolean", "default": false, "description": "Whether it may come to end earlier than before."}),
                ),
            ],
        ),
    );
    add(
        "ReleaseRequest",
        request("Give a lease back.", vec![("lease_key", true, lease_key()), ("lease_id", true, lease_id())]),
    );
    add(
        "TransferRequest",
        request(
            "Hand a lease to another owner.",
            vec![("lease_key", true, lease_key()), ("lease_id", true, lease_id()), ("to_owner", true, owner())],
        ),
    );
    add(
        "BreakRequest",
        request(
            "End somebody's lease.",
            vec![
                ("lease_key", true, lease_key()),
                ("reason", true, reason()),
                (
                    "grace_ms",
                    false,
                    millis("How long the holder has to stop; the rules' default if absent, at once if 0."),
                ),
                ("lease_id", false, lease_id()),
            ],
        ),
    );
    add(
        "QuarantineRequest",
        request(
            "Stop grants on a key, or allow them again.",
            vec![("lease_key", true, lease_key()), ("reason", true, reason())],
        ),
    );
    add(
        "ValidateRequest",
        request(
            "Ask whether a fencing token is the current one.",
            vec![("lease_key", true, lease_key()), ("fencing_token", true, fencing_token())],
        ),
    );
    add("GetRequest", request("Ask what a key is.", vec![("lease_key", true, lease_key())]));
    add(
        "ListRequest",
        request(
            "List leases: the latest of each key, unless a filter says otherwise.",
            vec![
                ("prefix", false, name(512, "Keys that begin so.")),
                ("owner", false, owner()),
                ("job_key", false, name(512, "For this job.")),
                ("subject", false, subject()),
                ("status", false, one_of(&STATUSES, "In this state now.")),
                (
                    "sort",
                    false,
                    one_of(
                        &[
                            "lease_key",
                            "-lease_key",
                            "acquired_at",
                            "-acquired_at",
                            "expires_at",
                            "-expires_at",
                            "updated_at",
                            "-updated_at",
                        ],
                        "The order; `-` is the greatest first. By `lease_key` if absent.",
                    ),
                ),
                ("limit", false, limit()),
                ("cursor", false, cursor()),
            ],
        ),
    );
    add(
        "HistoryRequest",
        request(
            "Every grant of a key, newest first.",
            vec![("lease_key", true, lease_key()), ("limit", false, limit()), ("cursor", false, cursor())],
        ),
    );
    add(
        "BatchOperation",
        json!({"description": "One operation of a batch.", "oneOf": [
            request("Take a lease, without waiting.", vec![("acquire", true, reference("AcquireRequest"))]),
            request("Keep a lease for longer.", vec![("renew", true, reference("RenewRequest"))]),
            request("Give a lease back.", vec![("release", true, reference("ReleaseRequest"))]),
        ]}),
    );
    add(
        "BatchRequest",
        request(
            "Several independent operations, in order.",
            vec![("operations", true, list(reference("BatchOperation"), 500, "Which."))],
        ),
    );
    add(
        "TokenCreateRequest",
        request(
            "Make an API token.",
            vec![
                ("name", true, name(256, "What people will know it by.")),
                ("role", true, role()),
                (
                    "prefixes",
                    false,
                    list(name(512, "A beginning of keys."), 64, "The keys it is limited to; all if empty."),
                ),
                ("expires_at", false, time("When it stops working; never if absent.")),
            ],
        ),
    );
    add("PageRequest", request("Which page.", vec![("limit", false, limit()), ("cursor", false, cursor())]));
    add(
        "TokenRevokeRequest",
        request("Stop an API token from working.", vec![("token_id", true, text("Which, by its public id."))]),
    );
}

fn answers(add: &mut impl FnMut(&str, Value) -> Option<Value>) {
    add("Lease", answer("A lease as it is at `server_time`.", lease()));
    add(
        "Released",
        answer(
            "A lease that was given back.",
            with(
                lease(),
                vec![(
                    "outcome",
                    true,
                    one_of(&["released", "expired"], "How it had ended: by this or an earlier release, or by itself."),
                )],
            ),
        ),
    );
    add(
        "Leases",
        answer(
            "The leases, in the order of the request.",
            vec![("leases", true, array(reference("Lease"), "All of them."))],
        ),
    );
    add(
        "Key",
        answer(
            "A key as it is at `server_time`.",
            vec![
                ("lease_key", true, lease_key()),
                ("status", true, one_of(&["free", "held", "breaking", "cooling", "quarantined"], "What it is.")),
                ("lease", true, or_null(reference("Lease"))),
                ("cooling_until", true, or_null(time("Until when nothing is granted, if it cools."))),
                ("quarantine", true, or_null(reference("Quarantine"))),
                ("queue_length", true, whole("How many wait for it.")),
                ("server_time", true, time("The server's time of this answer.")),
            ],
        ),
    );
    add(
        "Quarantine",
        answer(
            "Why nothing is granted.",
            vec![("since", true, time("Since when.")), ("reason", true, reason()), ("by", true, reference("Actor"))],
        ),
    );
    add(
        "Actor",
        answer(
            "Who did something.",
            vec![
                ("kind", true, one_of(&["token", "session", "system"], "What kind of caller.")),
                ("id", true, text("The public id.")),
                ("name", true, text("The name people gave it.")),
            ],
        ),
    );
    add(
        "Validity",
        answer(
            "What a fencing token is worth.",
            vec![
                (
                    "verdict",
                    true,
                    one_of(
                        &["current", "stale", "unknown"],
                        "Current: the key's greatest, and held. Stale: ended. Unknown: never given out.",
                    ),
                ),
                ("current_token", true, or_null(fencing_token())),
            ],
        ),
    );
    add(
        "BatchResults",
        answer(
            "The results, in the order of the operations.",
            vec![(
                "results",
                true,
                array(
                    json!({"oneOf": [
                        answer("As the operation by itself.", vec![("ok", true, json!({"oneOf": [reference("Released"), reference("Lease")]}))]),
                        answer("As the operation by itself, without a request id.", vec![("error", true, reference("Error"))]),
                    ]}),
                    "One for each operation.",
                ),
            )],
        ),
    );
    add(
        "AsOf",
        answer(
            "What of the past it includes: all that was committed up to here.",
            vec![
                ("position", true, whole("The position in the timeline.")),
                ("time", true, time("When that was read.")),
            ],
        ),
    );
    add("LeasePage", answer("A page of leases.", page("Lease")));
    add("Token", answer("An API token, without its secret.", token()));
    add(
        "NewToken",
        answer(
            "An API token just made.",
            with(
                token(),
                vec![
                    (
                        "token",
                        false,
                        text("The secret, `jl_...`. It cannot be shown again: a replayed request answers without it."),
                    ),
                    ("server_time", true, time("The server's time of this answer.")),
                ],
            ),
        ),
    );
    add(
        "TokenPage",
        answer(
            "A page of API tokens.",
            vec![
                ("items", true, array(reference("Token"), "What is on the page.")),
                ("next", true, or_null(text("The `cursor` of the next page; `null` after the last."))),
                ("as_of", true, time("Of when it is.")),
                ("server_time", true, time("The server's time of this answer.")),
            ],
        ),
    );
    add(
        "Session",
        answer(
            "Who is signed in.",
            vec![
                ("kind", true, one_of(&["token", "session", "system"], "A token or a session.")),
                ("id", true, text("Its public id.")),
                ("name", true, text("Its name.")),
                ("role", true, role()),
                ("prefixes", true, array(text("A beginning of keys."), "The keys it is limited to; all if empty.")),
                ("expires_at", true, or_null(time("When it ends."))),
                ("server_time", true, time("The server's time of this answer.")),
            ],
        ),
    );
    add(
        "Counters",
        answer(
            "The figures, of the keys that the caller may see.",
            vec![
                ("keys", true, whole("Keys that were ever leased.")),
                ("held", true, whole("Leases held now.")),
                (
                    "waiting",
                    true,
                    or_null(whole("Callers waiting for a key; `null` for a caller limited to some keys.")),
                ),
                ("grants", true, or_null(whole("Leases ever granted; `null` for a caller limited to some keys."))),
                ("collisions_today", true, whole("How often a duplicate was refused, since midnight UTC.")),
                ("collisions_total", true, whole("How often a duplicate was refused, ever.")),
                ("as_of", true, reference("AsOf")),
                ("server_time", true, time("The server's time of this answer.")),
            ],
        ),
    );
    let limits = [
        "ttl_min_ms",
        "ttl_max_ms",
        "ttl_default_ms",
        "wait_max_ms",
        "min_hold_max_ms",
        "max_hold_max_ms",
        "lock_delay_max_ms",
        "grace_max_ms",
        "grace_default_ms",
    ];
    add(
        "Meta",
        answer(
            "The server.",
            vec![
                ("version", true, text("The version of Job Leases.")),
                ("server_time", true, time("The server's time.")),
                (
                    "limits",
                    true,
                    answer(
                        "The limits and defaults it keeps.",
                        limits.into_iter().map(|limit| (limit, true, millis("A limit."))).collect(),
                    ),
                ),
            ],
        ),
    );
    add(
        "Error",
        answer(
            "Why not.",
            vec![
                ("code", true, text("What programs decide by.")),
                ("message", true, text("What people read.")),
                ("field", false, text("The field at fault, as a path: `leases[0].ttl_ms`.")),
                (
                    "details",
                    false,
                    json!({"type": "object", "description": "What else a program may want to know, by code."}),
                ),
                ("request_id", false, text("As in `X-Request-Id` and in the logs.")),
            ],
        ),
    );
}
