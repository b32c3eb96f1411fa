-- What the console shows besides the states.

-- The latest renewals of a grant, the newest last, 24 hexadecimal digits each: 16 for when (microseconds since the epoch), 8 for
-- how much time was left (milliseconds). Of a fixed width, so that the oldest can be cut off where the newest is added.
ALTER TABLE grants ADD COLUMN recent_renewals TEXT NOT NULL DEFAULT '' CHECK (length(recent_renewals) % 24 = 0);

-- What operators did to a key, as the timeline tells it. Rare, so that its index costs nothing that matters.
CREATE TABLE interventions (
    lease_key TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position > 0),
    event TEXT NOT NULL,
    PRIMARY KEY (lease_key, position)
) WITHOUT ROWID;

-- What happened in each minute in which anything did (minutes since the epoch), and how many leases were held at its end.
CREATE TABLE activity (
    minute INTEGER PRIMARY KEY,
    granted INTEGER NOT NULL DEFAULT 0,
    renewed INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0,
    -- Ended otherwise: expired, broken, transferred, undelivered.
    cut_short INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0
);

-- Ends that are rare and looked for: among many that were released they would be hard to find.
CREATE INDEX grants_by_end ON grants (outcome, token) WHERE outcome IN ('expired', 'broken', 'transferred', 'undelivered');
CREATE INDEX grants_breaking ON grants (token) WHERE break_ends_at IS NOT NULL AND outcome IS NULL;
