//! What is answered.

use serde_json::{Value, json};

use super::parts::*;

fn key() -> Vec<Field> {
    vec![
        ("lease_key", true, lease_key()),
        ("status", true, one_of(&["free", "held", "breaking", "cooling", "quarantined"], "What it is.")),
        ("lease", true, or_null(reference("Lease"))),
        ("cooling_until", true, or_null(time("Until when nothing is granted, if it cools."))),
        ("quarantine", true, or_null(reference("Quarantine"))),
        ("queue_length", true, whole("How many wait for it.")),
        ("server_time", true, time("The server's time of this answer.")),
    ]
}

pub(super) fn all(add: &mut impl FnMut(&str, Value) -> Option<Value>) {
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
    add("Key", answer("A key as it is at `server_time`.", key()));
    let more = vec![
        ("waiters", true, array(reference("Waiter"), "Who waits for it, first to be served first; at most 100.")),
        (
            "recent_renewals",
            true,
            array(reference("Renewal"), "The latest of its current or last lease, newest first."),
        ),
        (
            "interventions",
            true,
            array(reference("Intervention"), "What operators did to it, newest first, at most 50."),
        ),
    ];
    add("Inspection", answer("A key with all that an operator may want to know of it.", with(key(), more)));
    add(
        "Waiter",
        answer(
            "A caller who waits for a key.",
            vec![
                ("owner", true, owner()),
                ("since", true, time("Since when.")),
                ("deadline", true, time("Until when at the longest.")),
            ],
        ),
    );
    add(
        "Renewal",
        answer(
            "A renewal.",
            vec![("at", true, time("When.")), ("margin_ms", true, millis("How much time was left then."))],
        ),
    );
    add(
        "Intervention",
        answer(
            "What an operator did to a key.",
            vec![
                ("position", true, whole("Where it stands in the timeline.")),
                ("at", true, time("When.")),
                ("kind", true, text("What, as in the timeline.")),
                ("by", true, reference("Actor")),
                ("reason", true, or_null(reason())),
                ("owner", true, or_null(owner())),
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
    add(
        "Count",
        answer(
            "How many rows there are, counted up to a limit.",
            vec![
                ("at_least", true, whole("So many at the least.")),
                ("is_all", true, json!({"type": "boolean", "description": "Whether those are all."})),
            ],
        ),
    );
    add("LeasePage", answer("A page of leases.", with(page("Lease"), vec![("count", false, reference("Count"))])));
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
        "Record",
        answer(
            "A record: a key that was ever leased, who ever held one, what it was ever for or ever concerned.",
            vec![
                ("kind", true, one_of(&["lease", "owner", "job", "subject"], "Of which kind.")),
                ("name", true, text("Its name.")),
                ("status", false, one_of(&STATUSES, "Of a key: what its last lease is at `server_time`.")),
                ("owner", false, text("Of a key: who has or had it last.")),
            ],
        ),
    );
    add(
        "Records",
        answer(
            "What was found: kind by kind, each in the order of its names. Callers limited to prefixes are told of leases only.",
            vec![
                ("items", true, array(reference("Record"), "The records.")),
                ("server_time", true, time("The server's time; every status is the one at this instant.")),
            ],
        ),
    );
    add(
        "Events",
        answer(
            "A page of events. One request looks through some thousands: it may be short or empty and still have a next one.",
            vec![
                ("items", true, array(reference("Event"), "What is on the page.")),
                ("next", true, or_null(text("The `cursor` of the next page; `null` after the oldest that is kept."))),
                ("as_of", true, reference("AsOf")),
                ("server_time", true, time("The server's time of this answer.")),
            ],
        ),
    );
    add(
        "Event",
        answer(
            "A line of the timeline.",
            vec![
                ("position", true, whole("Where it stands in the timeline.")),
                ("event", true, json!({"type": "object", "description": "The event as it is stored."})),
            ],
        ),
    );
    let figures = ["granted", "renewed", "released", "cut_short", "refused", "held"];
    let figures = figures.into_iter().map(|name| (name, true, whole("How many; `held` at its end.")));
    add(
        "Minute",
        answer("One minute.", std::iter::once(("at", true, time("When it began."))).chain(figures).collect()),
    );
    add(
        "Trend",
        answer(
            "What happened lately.",
            vec![
                ("minutes", true, array(reference("Minute"), "Every minute up to the present one, oldest first.")),
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
                ("jobs", true, or_null(whole("Jobs known; `null` for a caller limited to some keys."))),
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
