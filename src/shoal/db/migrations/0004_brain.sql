-- The brain: what makes a task differ from its array, when an allocation ends, accounts, what share, ban and policy remember.

ALTER TABLE tasks ADD COLUMN special TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN ends REAL;

-- What ended within an hour [GWP G12]. Every commit adds to a few lines of the current hour; in this order of the key a
-- person's own lines stand together, and everybody's of a week are found owner by owner, so no second index is paid for.
CREATE TABLE acct (
    hour       INTEGER NOT NULL,
    owner      TEXT NOT NULL,
    site       TEXT NOT NULL,
    host       TEXT NOT NULL,
    pilot      TEXT NOT NULL,
    run        INTEGER NOT NULL,
    useful     REAL NOT NULL,
    failed     REAL NOT NULL,
    lost       REAL NOT NULL,
    duplicated REAL NOT NULL,
    tasks      INTEGER NOT NULL,
    queued     REAL NOT NULL,
    staging    REAL NOT NULL,
    PRIMARY KEY (owner, hour, site, host, pilot, run)
) WITHOUT ROWID;

-- The same core time by owner, site and hour alone, for quotas [SPHINX policy]: a starting engine reads it whole, which
-- it could not do with the lines above. Hour 0 holds what is older than any window of a quota.
CREATE TABLE spent (
    owner   TEXT NOT NULL,
    site    TEXT NOT NULL,
    hour    INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (owner, site, hour)
) WITHOUT ROWID;

-- Since when accounts are kept: before, pilots worked too and no line says for whom, so it was not idle time.
INSERT INTO meta (key, value) VALUES (
    'acct_since',
    max(
        ifnull((SELECT time FROM events ORDER BY seq DESC LIMIT 1), 0.0),
        (SELECT value FROM meta WHERE key = 'started')
    )
);

CREATE TABLE usage (
    owner TEXT NOT NULL PRIMARY KEY,
    data  TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE places (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE policy (
    version  INTEGER NOT NULL PRIMARY KEY,
    time     REAL NOT NULL,
    author   TEXT NOT NULL,
    document TEXT NOT NULL
);
