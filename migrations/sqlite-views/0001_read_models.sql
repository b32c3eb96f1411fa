-- The read models: what the timeline comes to. They follow it by position and can be rebuilt from what it still holds.
-- Microseconds since the epoch, in UTC; lengths of time in microseconds.

-- One row: how far they have come. The hash is that of the line at `applied`, to tell whether it is the same timeline.
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch TEXT NOT NULL,
    applied INTEGER NOT NULL CHECK (applied >= 0),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
);

-- Every grant. Tokens rise with time, so rows are appended; `previous` chains the grants of a key, so that its history
-- needs no index.
CREATE TABLE grants (
    token INTEGER PRIMARY KEY CHECK (token > 0),
    lease_key TEXT NOT NULL,
    previous INTEGER CHECK (previous < token),
    owner TEXT NOT NULL,
    job_key TEXT,
    acquired_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= acquired_at),
    ttl INTEGER NOT NULL CHECK (ttl > 0),
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    max_hold_until INTEGER,
    min_hold_until INTEGER,
    lock_delay INTEGER NOT NULL DEFAULT 0 CHECK (lock_delay >= 0),
    subjects TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}',
    -- A break under way: when it ends the lease, and the rest as JSON.
    break_ends_at INTEGER,
    breaking TEXT CHECK ((breaking IS NULL) = (break_ends_at IS NULL)),
    outcome TEXT CHECK (outcome IN ('released', 'expired', 'broken', 'transferred', 'undelivered')),
    ended_at INTEGER CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX grants_by_owner ON grants (owner, token);
CREATE INDEX grants_by_job ON grants (job_key, token) WHERE job_key IS NOT NULL;

CREATE TABLE subjects (
    subject TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (subject, token)
) WITHOUT ROWID;

-- Every key that was ever leased or quarantined, with its last grant. These rows outlive retention: the greatest token
-- of a key is never forgotten.
CREATE TABLE keys (
    lease_key TEXT PRIMARY KEY,
    token INTEGER,
    expires_at INTEGER,
    updated_at INTEGER,
    -- 1 while the last grant has no recorded end.
    live INTEGER CHECK (live IN (0, 1)),
    -- 0 for none.
    cooling_until INTEGER,
    -- JSON; empty for none.
    quarantine TEXT,
    changed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_token ON keys (token) WHERE token IS NOT NULL;
CREATE INDEX keys_by_expiry ON keys (expires_at, token) WHERE token IS NOT NULL;
CREATE INDEX keys_by_update ON keys (updated_at, token) WHERE token IS NOT NULL;
CREATE INDEX keys_live ON keys (expires_at) WHERE live = 1;
CREATE INDEX keys_quarantined ON keys (lease_key) WHERE quarantine > '';

CREATE TABLE owners (
    owner TEXT PRIMARY KEY,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    grants INTEGER NOT NULL CHECK (grants >= 0)
) WITHOUT ROWID;

-- Jobs known from leases.
CREATE TABLE jobs (
    job_key TEXT PRIMARY KEY,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    grants INTEGER NOT NULL CHECK (grants >= 0)
) WITHOUT ROWID;

-- How often a duplicate was refused: by key and owner, and by day (days since the epoch).
CREATE TABLE collisions (
    lease_key TEXT NOT NULL,
    owner TEXT NOT NULL,
    times INTEGER NOT NULL CHECK (times > 0),
    last_at INTEGER NOT NULL,
    PRIMARY KEY (lease_key, owner)
) WITHOUT ROWID;
CREATE TABLE collisions_by_day (
    day INTEGER NOT NULL,
    lease_key TEXT NOT NULL,
    times INTEGER NOT NULL CHECK (times > 0),
    PRIMARY KEY (day, lease_key)
) WITHOUT ROWID;

CREATE TABLE counters (
    name TEXT PRIMARY KEY CHECK (name IN ('grants', 'live', 'keys', 'jobs', 'owners', 'collisions')),
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('grants', 0), ('live', 0), ('keys', 0), ('jobs', 0), ('owners', 0), ('collisions', 0);
