-- What retention keeps of a key: its state as of the last line that was taken away, so that the read models can be made
-- anew from here and the lines that are left.
CREATE TABLE job_leases.kept_keys (
    lease_key text COLLATE "C" PRIMARY KEY CHECK (length(lease_key) > 0),
    -- JSON: the replay of all lines about the key up to `base_position`.
    state text NOT NULL CHECK (left(state, 1) = '{'),
    -- When its lease expires unless something else happens; absent once it has a recorded end. An outage concerns those
    -- that were alive when it began.
    alive_until bigint CHECK (alive_until >= 0)
);
CREATE INDEX kept_keys_alive ON job_leases.kept_keys (alive_until) WHERE alive_until IS NOT NULL;

-- The keys: each row is the lock of its key and the state it is in. Nothing but the primary key is indexed, so that a change touches
-- one page. Differs from SQLite, where the one process has the states in memory.
CREATE SEQUENCE job_leases.tokens_given AS bigint MINVALUE 1 CACHE 1;
SELECT setval('job_leases.tokens_given', job_leases.clock());

CREATE TABLE job_leases.keys (
    lease_key text COLLATE "C" PRIMARY KEY CHECK (length(lease_key) > 0),
    -- JSON: the replay of all lines about the key.
    state text NOT NULL CHECK (left(state, 1) = '{'),
    -- The last outage that the state has been read through.
    outage bigint NOT NULL DEFAULT 0 CHECK (outage >= 0),
    -- How many wait for it, and how often that has changed.
    waiting integer NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    queue bigint NOT NULL DEFAULT 0 CHECK (queue >= 0)
) WITH (fillfactor = 60);

-- Callers who wait, first come first: they live as long as their connection and their node. Changed only under the lock of their
-- key's row.
CREATE TABLE job_leases.waiters (
    lease_key text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    -- The node's number and one of its own, see `node_of`.
    waiter bigint NOT NULL UNIQUE,
    node bigint NOT NULL,
    -- JSON: the waiter as the rules know it.
    body text NOT NULL CHECK (left(body, 1) = '{'),
    -- The request's idempotency key, if it carries one.
    caller text COLLATE "C",
    key text COLLATE "C",
    fingerprint bytea CHECK (length(fingerprint) = 32),
    PRIMARY KEY (lease_key, place),
    CHECK ((caller IS NULL) = (key IS NULL) AND (key IS NULL) = (fingerprint IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX waiters_by_request ON job_leases.waiters (caller, key) WHERE caller IS NOT NULL;

-- What waiters of other nodes are to be told; their node takes it away.
CREATE TABLE job_leases.wakings (
    waiter bigint PRIMARY KEY,
    node bigint NOT NULL,
    told_at bigint NOT NULL,
    -- JSON: the reply or the refusal.
    result text NOT NULL CHECK (left(result, 1) = '{'),
    -- Whether a grant is kept although nobody can be told of it.
    is_kept boolean NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX wakings_by_node ON job_leases.wakings (node);
