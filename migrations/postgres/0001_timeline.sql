-- Server time, in microseconds since the epoch, in UTC: the database's own clock is the one authority on expiry. All statements
-- read it here, so that a test can set it.
CREATE FUNCTION job_leases.clock() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The truth: one line for every change, chained by hashes. Positions are given by the sequencer, dense from 1. Bytes and not jsonb,
-- since the hash is over what was written.
CREATE TABLE job_leases.timeline (
    position bigint PRIMARY KEY CHECK (position > 0),
    hash bytea NOT NULL CHECK (length(hash) = 32),
    body text NOT NULL CHECK (octet_length(body) BETWEEN 2 AND 65536)
);
-- The hashes are all different, and bodies are short: to compress them would only cost time.
ALTER TABLE job_leases.timeline ALTER COLUMN body SET STORAGE EXTERNAL;

-- What was committed and has no position yet, written with the change itself: rows of lines, with U+001E between them. For each key
-- the ids are in the order of its changes, since they are drawn under the lock of its row. Rows come and go all the time.
CREATE TABLE job_leases.log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body text NOT NULL CHECK (octet_length(body) BETWEEN 2 AND 65536)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE job_leases.log ALTER COLUMN body SET STORAGE EXTERNAL;

-- One row: the end of the timeline. Whoever moves it compares what it was.
CREATE TABLE job_leases.head (
    id smallint PRIMARY KEY CHECK (id = 1),
    -- Tells this database from what a restore makes of it: part of every event id.
    epoch text NOT NULL CHECK (length(epoch) BETWEEN 8 AND 32),
    position bigint NOT NULL DEFAULT 0 CHECK (position >= 0),
    hash bytea NOT NULL CHECK (length(hash) = 32),
    -- What retention has taken away: everything up to this position, and the hash of the line there.
    base_position bigint NOT NULL DEFAULT 0 CHECK (base_position BETWEEN 0 AND position),
    base_hash bytea NOT NULL CHECK (length(base_hash) = 32)
) WITH (fillfactor = 10);
INSERT INTO job_leases.head (id, epoch, hash, base_hash)
    VALUES (1, substr(md5(random()::text || clock_timestamp()::text), 1, 16), decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'));

-- One row: the service as a whole. Any node's sign of life is the service's.
CREATE TABLE job_leases.service (
    id smallint PRIMARY KEY CHECK (id = 1),
    -- When the service was last known to live: microseconds since the epoch.
    lived_at bigint NOT NULL CHECK (lived_at >= 0),
    -- The last outage that was recorded; 0 for none.
    outages bigint NOT NULL DEFAULT 0 CHECK (outages >= 0)
) WITH (fillfactor = 10);
INSERT INTO job_leases.service (id, lived_at) VALUES (1, job_leases.clock());

-- Times in which the service was away. A lease that was alive at the start of one is read through it.
CREATE TABLE job_leases.outages (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    began bigint NOT NULL CHECK (began >= 0),
    ended bigint NOT NULL CHECK (ended > began),
    grace bigint NOT NULL CHECK (grace >= 0)
);

-- The nodes that serve this database, each start of one anew. One that was not seen for 3 s is taken for dead.
CREATE SEQUENCE job_leases.node AS bigint;
CREATE TABLE job_leases.nodes (
    node bigint PRIMARY KEY CHECK (node > 0),
    seen_at bigint NOT NULL CHECK (seen_at >= 0),
    version text NOT NULL
) WITH (fillfactor = 10);

-- What one node at a time does, by a lease: whose token is not the duty's any more changes nothing.
CREATE TABLE job_leases.duties (
    name text PRIMARY KEY CHECK (name IN ('sequencer', 'upkeep')),
    node bigint NOT NULL,
    token bigint NOT NULL CHECK (token >= 0),
    held_until bigint NOT NULL CHECK (held_until >= 0)
) WITH (fillfactor = 10);
INSERT INTO job_leases.duties (name, node, token, held_until) VALUES ('sequencer', 0, 0, 0), ('upkeep', 0, 0, 0);
