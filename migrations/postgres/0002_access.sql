-- API tokens. Only the SHA-256 of a token is kept.
CREATE TABLE job_leases.tokens (
    token_id text PRIMARY KEY,
    hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
    role text NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    -- A JSON array of key prefixes; all keys if empty.
    prefixes text NOT NULL CHECK (json_typeof(prefixes::json) = 'array'),
    created_at bigint NOT NULL CHECK (created_at >= 0),
    expires_at bigint CHECK (expires_at >= 0),
    revoked_at bigint CHECK (revoked_at >= 0)
);

-- Browser sessions. Only the SHA-256 of a session's secret is kept.
CREATE TABLE job_leases.sessions (
    session_id text PRIMARY KEY,
    hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
    role text NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    prefixes text NOT NULL CHECK (json_typeof(prefixes::json) = 'array'),
    -- The API token that opened it, with which it ends; none for a sign-in link.
    token_id text REFERENCES job_leases.tokens (token_id),
    created_at bigint NOT NULL CHECK (created_at >= 0),
    expires_at bigint NOT NULL CHECK (expires_at >= created_at),
    closed_at bigint CHECK (closed_at >= created_at)
);
CREATE INDEX sessions_by_token ON job_leases.sessions (token_id) WHERE closed_at IS NULL;

-- One-time sign-in links. Only the SHA-256 of a link's secret is kept.
CREATE TABLE job_leases.sign_in_links (
    hash bytea PRIMARY KEY CHECK (length(hash) = 32),
    created_at bigint NOT NULL CHECK (created_at >= 0),
    expires_at bigint NOT NULL CHECK (expires_at >= created_at)
);

-- One row: how often any of it was changed. Each node has all of it in memory, and reads it anew when this has moved on.
CREATE TABLE job_leases.access (
    id smallint PRIMARY KEY CHECK (id = 1),
    changes bigint NOT NULL DEFAULT 0 CHECK (changes >= 0)
) WITH (fillfactor = 10);
INSERT INTO job_leases.access (id) VALUES (1);
