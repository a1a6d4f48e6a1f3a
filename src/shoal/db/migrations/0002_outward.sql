-- A server for many: people, their tokens, an audit; pilots bound to an owner or a group; hosts that are recognised.

ALTER TABLE runs ADD COLUMN env_file TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN grp TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN token TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN revoked INTEGER NOT NULL DEFAULT 0;

-- Whose an event is; those from before this column are everyone's of a one-user server, which only its
-- administrator reads.
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';

CREATE TABLE hosts (
    identity  TEXT NOT NULL,
    owner     TEXT NOT NULL,
    grp       TEXT NOT NULL,
    site      TEXT NOT NULL,
    host      TEXT NOT NULL,
    first     REAL NOT NULL,
    seen      REAL NOT NULL,
    pilots    INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    lost      INTEGER NOT NULL,
    busy      REAL NOT NULL,
    PRIMARY KEY (identity, owner, grp, site)
) WITHOUT ROWID;

CREATE TABLE users (
    name    TEXT NOT NULL PRIMARY KEY,
    grp     TEXT NOT NULL,
    role    TEXT NOT NULL,
    created REAL NOT NULL
);

CREATE TABLE groups (
    name    TEXT NOT NULL PRIMARY KEY,
    created REAL NOT NULL
);

-- No secret is here, only its SHA-256.
CREATE TABLE tokens (
    token      TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL,
    digest     TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    grp        TEXT NOT NULL,
    site       TEXT NOT NULL,
    scopes     TEXT NOT NULL,
    max_pilots INTEGER,
    uses       INTEGER,
    note       TEXT NOT NULL,
    maker      TEXT NOT NULL,
    created    REAL NOT NULL,
    expires    REAL NOT NULL,
    revoked    REAL,
    used       REAL,
    address    TEXT NOT NULL
);

CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY,
    time    REAL NOT NULL,
    token   TEXT NOT NULL,
    owner   TEXT NOT NULL,
    address TEXT NOT NULL,
    what    TEXT NOT NULL,
    about   TEXT NOT NULL,
    outcome TEXT NOT NULL,
    times   INTEGER NOT NULL
);
