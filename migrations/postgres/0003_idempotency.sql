-- What a request with an Idempotency-Key did, written with its effect: the same request again is answered from here.
CREATE TABLE job_leases.idempotency (
    caller text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the operation and its arguments.
    fingerprint bytea NOT NULL CHECK (length(fingerprint) = 32),
    -- What was answered, as JSON.
    answer text NOT NULL,
    created_at bigint NOT NULL CHECK (created_at >= 0),
    PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_by_age ON job_leases.idempotency (created_at);
