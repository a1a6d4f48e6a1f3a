-- Partial results: what the tasks of a run emitted, reduced and merged. Notices: what is to be told, until it is told.

CREATE TABLE partials (
    run INTEGER PRIMARY KEY,
    reduce TEXT NOT NULL,
    until TEXT NOT NULL,
    reached TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    merged TEXT NOT NULL
) STRICT;

-- When a run is due, if all its tasks have the same deadline.
ALTER TABLE runs ADD COLUMN due REAL;
ALTER TABLE runs ADD COLUMN notify TEXT NOT NULL DEFAULT '';
CREATE TABLE notices (
    seq INTEGER NOT NULL,
    target TEXT NOT NULL,
    run INTEGER NOT NULL,
    owner TEXT NOT NULL,
    time REAL NOT NULL,
    what TEXT NOT NULL,
    text TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (seq, target)
) STRICT, WITHOUT ROWID;
