-- API tokens. Only the SHA-256 of a token is kept.
CREATE TABLE tokens (
    token_id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    -- A JSON array of key prefixes; all keys if empty.
    prefixes TEXT NOT NULL CHECK (json_type(prefixes) = 'array'),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    expires_at INTEGER CHECK (expires_at >= 0),
    revoked_at INTEGER CHECK (revoked_at >= 0)
);

-- Browser sessions. Only the SHA-256 of a session's secret is kept.
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'worker', 'operator', 'admin')),
    prefixes TEXT NOT NULL CHECK (json_type(prefixes) = 'array'),
    -- The API token that opened it, with which it ends; none for a sign-in link.
    token_id TEXT REFERENCES tokens (token_id),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    expires_at INTEGER NOT NULL CHECK (expires_at >= created_at),
    closed_at INTEGER CHECK (closed_at >= created_at)
);

-- One-time sign-in links. Only the SHA-256 of a link's secret is kept.
CREATE TABLE sign_in_links (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    expires_at INTEGER NOT NULL CHECK (expires_at >= created_at)
) WITHOUT ROWID;
