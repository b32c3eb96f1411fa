-- What a request with an Idempotency-Key did, written with its effect: the same request again is answered from here.
CREATE TABLE idempotency (
    caller TEXT NOT NULL,
    key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the operation and its arguments.
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
    -- What was answered, as JSON.
    answer TEXT NOT NULL,
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    PRIMARY KEY (caller, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_age ON idempotency (created_at);
