-- One row: which programs may use this database. Those that know its schema up to this number at least, this file's number being the
-- one of its schema. A migration that older programs can live with leaves the row as it is; any other sets it to its own number.
CREATE TABLE job_leases.compatibility (
    id smallint PRIMARY KEY CHECK (id = 1),
    oldest bigint NOT NULL CHECK (oldest > 0)
);
INSERT INTO job_leases.compatibility (id, oldest) VALUES (1, 5);

-- Up to which number a node's program knows the schema. Absent where it does not say so itself.
ALTER TABLE job_leases.nodes ADD COLUMN schema bigint CHECK (schema > 0);
