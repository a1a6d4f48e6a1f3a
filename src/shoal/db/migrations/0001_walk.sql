-- The first schema: what one task needs on its walk.
--
-- Only SQL that SQLite 3.26 knows: some hosts link Python 3.11 to one as old. So no STRICT tables, no RETURNING,
-- no generated columns, no JSON functions. Column types are then only leanings: a REAL column makes 5 into 5.0,
-- which is what times want. A NaN is stored as NULL, so NOT NULL on a REAL column keeps NaN out as well.
-- Columns stand in the order of the row types in engine/changes.py; a test holds the two together.
-- Foreign keys are not used: the engine is the one author of all rows, and checks would cost on every task.

-- "shoa": tells our files from those of other programs before anything is written to them.
PRAGMA application_id = 1936224097;

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;

-- oldest_seq: the smallest event that can still be asked for. event_bytes: kept along with each commit,
-- because adding it up would mean reading the whole journal.
INSERT INTO meta (key, value) VALUES ('incarnation', 0), ('started', 0.0), ('oldest_seq', 1), ('event_bytes', 0);

CREATE TABLE runs (
    run       INTEGER NOT NULL PRIMARY KEY,
    owner     TEXT NOT NULL,
    name      TEXT NOT NULL,
    created   REAL NOT NULL,
    finished  REAL,
    total     INTEGER NOT NULL,
    counts    TEXT NOT NULL,
    cwd       TEXT NOT NULL,
    seed      INTEGER NOT NULL,
    max_fail  INTEGER,
    key       TEXT NOT NULL,
    digest    TEXT NOT NULL,
    labels    TEXT NOT NULL,
    signature TEXT NOT NULL
);

-- Runs are never deleted and mostly finished: a start must not read them all.
CREATE INDEX runs_open ON runs (run) WHERE finished IS NULL;
-- Unique, so that even a defect above cannot make two runs of one idempotency key [promise I4].
CREATE UNIQUE INDEX runs_by_key ON runs (owner, key) WHERE key <> '';
CREATE INDEX runs_by_signature ON runs (owner, signature, run) WHERE signature <> '';

CREATE TABLE arrays (
    run   INTEGER NOT NULL,
    first INTEGER NOT NULL,
    size  INTEGER NOT NULL,
    name  TEXT NOT NULL,
    task  TEXT NOT NULL,
    PRIMARY KEY (run, first)
) WITHOUT ROWID;

-- The key alone gives every listing its order, and a run's states are read at about a million rows a second:
-- an index by state would be paid for twice by each task and is not needed.
CREATE TABLE tasks (
    run       INTEGER NOT NULL,
    element   INTEGER NOT NULL,
    state     TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    winner    TEXT NOT NULL,
    retries   INTEGER NOT NULL,
    losses    INTEGER NOT NULL,
    live      TEXT NOT NULL,
    cause     TEXT NOT NULL,
    message   TEXT NOT NULL,
    exit_code INTEGER,
    signal    INTEGER,
    leased    REAL,
    started   REAL,
    ended     REAL,
    duration  REAL,
    cpu       REAL,
    max_rss   INTEGER,
    pilot     TEXT NOT NULL,
    host      TEXT NOT NULL,
    site      TEXT NOT NULL,
    last_line TEXT NOT NULL,
    new_files TEXT NOT NULL,
    reused    TEXT NOT NULL,
    PRIMARY KEY (run, element)
) WITHOUT ROWID;

-- The latest finals, over all runs, for a starting engine. `ended` grows, so entries go to the end of the tree:
-- one cheap insert in a task's life.
CREATE INDEX tasks_settled ON tasks (ended) WHERE winner <> '';

CREATE TABLE spans (
    run     INTEGER NOT NULL,
    low     INTEGER NOT NULL,
    high    INTEGER NOT NULL,
    state   TEXT NOT NULL,
    cause   TEXT NOT NULL,
    message TEXT NOT NULL,
    ended   REAL NOT NULL,
    PRIMARY KEY (run, low),
    CHECK (low < high)
) WITHOUT ROWID;

-- An element is in one span at most: searches rest on it (the nearest span below is the only one to look at),
-- and a second final state over a first would be a defect above [promise I2].
CREATE TRIGGER spans_apart BEFORE INSERT ON spans
WHEN (SELECT high FROM spans WHERE run = NEW.run AND low < NEW.high ORDER BY low DESC LIMIT 1) > NEW.low
BEGIN
    SELECT RAISE(ABORT, 'spans overlap');
END;

CREATE TABLE pilots (
    pilot    TEXT NOT NULL PRIMARY KEY,
    state    TEXT NOT NULL,
    reason   TEXT NOT NULL,
    owner    TEXT NOT NULL,
    site     TEXT NOT NULL,
    host     TEXT NOT NULL,
    identity TEXT NOT NULL,
    session  TEXT NOT NULL,
    former   TEXT NOT NULL,
    cores    INTEGER NOT NULL,
    memory   INTEGER NOT NULL,
    disk     INTEGER NOT NULL,
    gpus     INTEGER NOT NULL,
    version  TEXT NOT NULL,
    tags     TEXT NOT NULL,
    joined   REAL NOT NULL,
    ended    REAL
);

CREATE TABLE events (
    seq     INTEGER NOT NULL PRIMARY KEY,
    time    REAL NOT NULL,
    kind    TEXT NOT NULL,
    run     INTEGER,
    task    INTEGER,
    attempt INTEGER,
    pilot   TEXT,
    site    TEXT,
    data    TEXT NOT NULL
);

-- One index for two questions. In order of (run, seq) it grows only at the end of each run, so it is cheap to
-- write, and a run is followed from any seq. `task` rides along: one task's events are found by reading index
-- entries of its run only (20 ms for 200,000), without a second index whose entries would fall all over it.
CREATE INDEX events_of_run ON events (run, seq, task);
