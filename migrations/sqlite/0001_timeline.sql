-- The truth: one line for every change, chained by hashes. Positions are given by the writer, dense from 1.
CREATE TABLE timeline (
    position INTEGER PRIMARY KEY CHECK (position > 0),
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    body TEXT NOT NULL CHECK (length(body) BETWEEN 2 AND 65536)
);

-- One row. Microseconds since the epoch, in UTC, unless said otherwise.
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    -- Tells this database from what a restore makes of it: part of every event id.
    epoch TEXT NOT NULL CHECK (length(epoch) BETWEEN 8 AND 32),
    -- The clock: when the service was last known to live, the latest time that any answer may have carried, and the
    -- machine's own run and elapsed time then.
    lived_at INTEGER NOT NULL CHECK (lived_at >= 0),
    ceiling INTEGER NOT NULL CHECK (ceiling >= lived_at),
    boot_id TEXT,
    elapsed INTEGER NOT NULL CHECK (elapsed >= 0),
    -- What retention has taken away: everything up to this position, and the hash of the line there.
    base_position INTEGER NOT NULL DEFAULT 0 CHECK (base_position >= 0),
    base_hash BLOB NOT NULL CHECK (length(base_hash) = 32)
);
