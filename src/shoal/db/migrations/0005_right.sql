-- Right before fast: identity of runs, who may report, bans by holder, checkpoints that travel.

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
