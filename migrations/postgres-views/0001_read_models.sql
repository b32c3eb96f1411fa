-- The read models: what the timeline comes to. They follow it by position and can be rebuilt from what it still holds.
-- Microseconds since the epoch, in UTC; lengths of time in microseconds.
--
-- Names are compared by their bytes, whatever the database's own order is: prefixes are ranges of bytes.

-- One row: how far they have come. The hash is that of the line at `applied`. They are of the same database as the
-- timeline, so that no epoch need tell that they belong to it.
CREATE TABLE job_leases_views.progress (
    id bigint PRIMARY KEY CHECK (id = 1),
    applied bigint NOT NULL CHECK (applied >= 0),
    hash bytea NOT NULL CHECK (octet_length(hash) = 32)
);
INSERT INTO job_leases_views.progress (id, applied, hash) VALUES (1, 0, decode(repeat('00', 32), 'hex'));

-- Every grant. Tokens rise with time, so rows are appended; `previous` chains the grants of a key, so that its history
-- needs no index.
--
-- What changes after the grant (renewals, a break, the end) is in no index, nor in the condition of one: then the changed
-- row stays on its page, which is kept a little empty for it, and no index is touched.
CREATE TABLE job_leases_views.grants (
    token bigint PRIMARY KEY CHECK (token > 0),
    lease_key text COLLATE "C" NOT NULL,
    previous bigint CHECK (previous < token),
    owner text COLLATE "C" NOT NULL,
    job_key text COLLATE "C",
    acquired_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    updated_at bigint NOT NULL CHECK (updated_at >= acquired_at),
    ttl bigint NOT NULL CHECK (ttl > 0),
    renewals bigint NOT NULL DEFAULT 0 CHECK (renewals >= 0),
    max_hold_until bigint,
    min_hold_until bigint,
    lock_delay bigint NOT NULL DEFAULT 0 CHECK (lock_delay >= 0),
    subjects text NOT NULL DEFAULT '[]',
    metadata text NOT NULL DEFAULT '{}',
    -- A break under way: when it ends the lease, and the rest as JSON.
    break_ends_at bigint,
    breaking text CHECK ((breaking IS NULL) = (break_ends_at IS NULL)),
    outcome text COLLATE "C" CHECK (outcome IN ('released', 'expired', 'broken', 'transferred', 'undelivered')),
    ended_at bigint CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX grants_by_owner ON job_leases_views.grants (owner, token);
CREATE INDEX grants_by_job ON job_leases_views.grants (job_key, token) WHERE job_key IS NOT NULL;

CREATE TABLE job_leases_views.subjects (
    subject text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (subject, token)
);

-- Every key that was ever leased or quarantined, with its last grant. These rows outlive retention: the greatest token
-- of a key is never forgotten.
CREATE TABLE job_leases_views.keys (
    lease_key text COLLATE "C" PRIMARY KEY,
    token bigint,
    expires_at bigint,
    updated_at bigint,
    -- While the last grant has no recorded end.
    live boolean,
    -- 0 for none.
    cooling_until bigint,
    -- JSON; empty for none.
    quarantine text COLLATE "C",
    changed_at bigint NOT NULL
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX keys_by_token ON job_leases_views.keys (token);
-- What is live and what is over lie apart, so that one index serves those who look for either and those who list both.
CREATE INDEX keys_by_expiry ON job_leases_views.keys (live, expires_at, token);
CREATE INDEX keys_by_update ON job_leases_views.keys (updated_at, token);

CREATE TABLE job_leases_views.owners (
    owner text COLLATE "C" PRIMARY KEY,
    first_seen_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    grants bigint NOT NULL CHECK (grants >= 0)
) WITH (fillfactor = 50);

-- Jobs known from leases.
CREATE TABLE job_leases_views.jobs (
    job_key text COLLATE "C" PRIMARY KEY,
    first_seen_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    grants bigint NOT NULL CHECK (grants >= 0)
) WITH (fillfactor = 80);

-- How often a duplicate was refused: by key and owner, and by day (days since the epoch).
CREATE TABLE job_leases_views.collisions (
    lease_key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    times bigint NOT NULL CHECK (times > 0),
    last_at bigint NOT NULL,
    PRIMARY KEY (lease_key, owner)
) WITH (fillfactor = 80);
CREATE TABLE job_leases_views.collisions_by_day (
    day bigint NOT NULL,
    lease_key text COLLATE "C" NOT NULL,
    times bigint NOT NULL CHECK (times > 0),
    PRIMARY KEY (day, lease_key)
) WITH (fillfactor = 80);

CREATE TABLE job_leases_views.counters (
    name text COLLATE "C" PRIMARY KEY CHECK (name IN ('grants', 'live', 'keys', 'jobs', 'owners', 'collisions')),
    value bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO job_leases_views.counters (name, value)
    VALUES ('grants', 0), ('live', 0), ('keys', 0), ('jobs', 0), ('owners', 0), ('collisions', 0);
