-- Functions and chunks: results in rows, runs that stay open, leases of many elements as one row, blobs.

ALTER TABLE runs ADD COLUMN open INTEGER NOT NULL DEFAULT 0;
-- What a function returned or raised, as a payload text; nobody here looks inside.
ALTER TABLE tasks ADD COLUMN result TEXT NOT NULL DEFAULT '';

-- Elements low .. high - 1 leased together. Those that have a row in `tasks`, or are final, have left their chunk;
-- the row goes when all have.
CREATE TABLE chunks (
    run         INTEGER NOT NULL,
    low         INTEGER NOT NULL,
    high        INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    pilot       TEXT NOT NULL,
    leased      REAL NOT NULL,
    PRIMARY KEY (run, low, number, incarnation)
) WITHOUT ROWID;

CREATE TABLE blobs (
    digest  TEXT NOT NULL PRIMARY KEY,
    size    INTEGER NOT NULL,
    created REAL NOT NULL
) WITHOUT ROWID;

-- Who holds a blob: a run (its calls, its results), or run 0 for what a person has put and not used yet.
CREATE TABLE blob_refs (
    digest TEXT NOT NULL,
    owner  TEXT NOT NULL,
    run    INTEGER NOT NULL,
    since  REAL NOT NULL,
    PRIMARY KEY (digest, owner, run)
) WITHOUT ROWID;
CREATE INDEX blob_refs_of_run ON blob_refs (run);
