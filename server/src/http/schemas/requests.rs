//! What is asked.

use serde_json::{Value, json};

use super::parts::*;

pub(super) fn all(add: &mut impl FnMut(&str, Value) -> Option<Value>) {
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
    add(
        "AttendRequest",
        request(
            "Wait until a lease is over or is to end, but no longer than it would be held unrenewed.",
            vec![
                ("lease_key", true, lease_key()),
                ("lease_id", true, lease_id()),
                ("wait_ms", false, millis("How long at the most, up to a minute; not at all if absent or 0.")),
            ],
        ),
    );
    add("GetRequest", request("Ask what a key is.", vec![("lease_key", true, lease_key())]));
    let count = json!({"type": "boolean", "default": false,
        "description": "Whether to count as well all that answer to the filters, up to 1,000."});
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
                ("count", false, count),
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
    let minutes = json!({"type": "integer", "minimum": 1, "maximum": 1440, "default": 60,
        "description": "For how many minutes up to now."});
    add("TrendRequest", request("How the figures came about.", vec![("minutes", false, minutes)]));
    let most = json!({"type": "integer", "minimum": 1, "maximum": 500, "default": 10, "description": "How many of each kind at most."});
    add(
        "FindRequest",
        request(
            "Which records.",
            vec![
                (
                    "prefix",
                    true,
                    name(
                        512,
                        "How the name begins; of a customer, license or invoice also how it begins after the kind.",
                    ),
                ),
                ("limit", false, most),
            ],
        ),
    );
    add(
        "TimelineRequest",
        request(
            "Which events: the newest first.",
            vec![
                ("prefix", false, name(512, "About keys that begin so.")),
                ("kind", false, text("Of this kind, or of all that begin so before a point: `lease.broken`, `lease`.")),
                ("limit", false, limit()),
                ("cursor", false, cursor()),
            ],
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
