-- One row: which programs may use this database. Those that know its schema up to this number at least, this file's number being the
-- one of its schema. A migration that older programs can live with leaves the row as it is; any other sets it to its own number.
CREATE TABLE compatibility (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    oldest INTEGER NOT NULL CHECK (oldest > 0)
);
INSERT INTO compatibility (id, oldest) VALUES (1, 4);
