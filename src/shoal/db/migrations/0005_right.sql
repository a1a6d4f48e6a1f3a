-- Right before fast: identity of runs, who may report, bans by holder, checkpoints that travel.

-- Identity of runs [ADR 0015]: a nonce for each, one also for those that are here already; attempt numbers that a server
-- which crashed may have handed out; whether the last server ended in order; the key that proofs of leases are made with.
ALTER TABLE runs ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET nonce = lower(hex(randomblob(8)));
INSERT INTO meta (key, value) VALUES ('ended', 0), ('lease_key', lower(hex(randomblob(32))));

-- Bans belong to the owner or group whose pilots failed. Those from before are of nobody, and short: they are let go.
DROP TABLE places;
CREATE TABLE places (
    holder TEXT NOT NULL,
    kind   TEXT NOT NULL,
    name   TEXT NOT NULL,
    data   TEXT NOT NULL,
    PRIMARY KEY (holder, kind, name)
) WITHOUT ROWID;

-- A site's name belongs to whoever had the first enrolment token for it; an administrator may share it.
CREATE TABLE sites (
    name    TEXT NOT NULL PRIMARY KEY,
    holders TEXT NOT NULL,  -- owners and @groups, separated by blanks; *: everybody
    created REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO sites (name, holders, created)
SELECT site, replace(group_concat(DISTINCT CASE WHEN grp <> '' THEN '@' || grp ELSE owner END), ',', ' '), min(created)
FROM tokens WHERE kind = 'enrol' AND site NOT IN ('', 'local') GROUP BY site;

-- Tokens know what they were made with; sessions of pilots that came over TLS are bound to their certificate.
ALTER TABLE tokens ADD COLUMN lineage TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN bound INTEGER NOT NULL DEFAULT 0;
