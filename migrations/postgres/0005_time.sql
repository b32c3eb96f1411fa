-- SQLite has nothing of this: there the file's one process has the clock.

-- Which run of which server this is, as far as clocks go: another server that takes over has another clock.
CREATE FUNCTION job_leases.server() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint $$;

ALTER TABLE job_leases.service
    -- The run of a server by whose clock the following was written. As long as it is another nothing is decided.
    ADD COLUMN server bigint NOT NULL DEFAULT 0,
    -- By how much server time was ahead of that clock, in microseconds, and when by that clock; it is slewed towards it since then.
    ADD COLUMN ahead bigint NOT NULL DEFAULT 0,
    ADD COLUMN ahead_since bigint NOT NULL DEFAULT 0;
