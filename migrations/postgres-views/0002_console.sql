-- What the console shows besides the states.

-- The latest renewals of a grant, the newest last, 24 hexadecimal digits each: 16 for when (microseconds since the epoch), 8 for
-- how much time was left (milliseconds). Of a fixed width, so that the oldest can be cut off where the newest is added.
ALTER TABLE job_leases_views.grants
    ADD COLUMN recent_renewals text COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(recent_renewals) % 24 = 0);

-- What operators did to a key, as the timeline tells it. Rare, so that its index costs nothing that matters.
CREATE TABLE job_leases_views.interventions (
    lease_key text COLLATE "C" NOT NULL,
    position bigint NOT NULL CHECK (position > 0),
    event text NOT NULL,
    PRIMARY KEY (lease_key, position)
);

-- What happened in each minute in which anything did (minutes since the epoch), and how many leases were held at its end.
CREATE TABLE job_leases_views.activity (
    minute bigint PRIMARY KEY,
    granted bigint NOT NULL DEFAULT 0,
    renewed bigint NOT NULL DEFAULT 0,
    released bigint NOT NULL DEFAULT 0,
    -- Ended otherwise: expired, broken, transferred, undelivered.
    cut_short bigint NOT NULL DEFAULT 0,
    refused bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);

-- Grants in a state that is rare and looked for: among many that were released they would be hard to find. Where SQLite has
-- an index with a condition, this is a table: there the condition would take an update of every grant that ends from its page.
CREATE TABLE job_leases_views.rare_states (
    status text COLLATE "C" NOT NULL CHECK (status IN ('breaking', 'expired', 'broken', 'transferred', 'undelivered')),
    token bigint NOT NULL,
    PRIMARY KEY (status, token)
);
