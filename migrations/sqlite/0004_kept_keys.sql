-- What retention keeps of a key: its state as of the last line that was taken away, so that the read models can be made
-- anew from here and the lines that are left.
CREATE TABLE kept_keys (
    lease_key TEXT PRIMARY KEY CHECK (length(lease_key) > 0),
    -- JSON: the replay of all lines about the key up to `base_position`.
    state TEXT NOT NULL CHECK (json_type(state) = 'object'),
    -- When its lease expires unless something else happens; absent once it has a recorded end. An outage concerns those
    -- that were alive when it began.
    alive_until INTEGER CHECK (alive_until >= 0)
) WITHOUT ROWID;

CREATE INDEX kept_keys_alive ON kept_keys (alive_until) WHERE alive_until IS NOT NULL;
