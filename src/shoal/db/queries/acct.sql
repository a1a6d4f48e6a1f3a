-- Accounting by the hour, and the state of shares, bans and the policy.
-- The table expression `people` finds the owners one after another by the key of `acct`, each in one step.

-- name: add_acct
-- Add to an accounting row, which may be a new one.
INSERT INTO acct (
    hour, owner, site, host, pilot, run, useful, failed, lost, duplicated, tasks, queued, staging
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, hour, site, host, pilot, run) DO UPDATE SET
    useful = useful + excluded.useful, failed = failed + excluded.failed, lost = lost + excluded.lost,
    duplicated = duplicated + excluded.duplicated, tasks = tasks + excluded.tasks, queued = queued + excluded.queued,
    staging = staging + excluded.staging;

-- name: add_spent
-- Add to the core time of an owner on a site within an hour.
INSERT INTO spent (owner, site, hour, seconds) VALUES (?, ?, ?, ?)
ON CONFLICT (owner, site, hour) DO UPDATE SET seconds = seconds + excluded.seconds;

-- name: newest_spent
-- The last hour in which something was spent.
SELECT ifnull(max(hour), 0) FROM spent;

-- name: all_spent
-- Core time by owner, site and hour; what is older than a given hour is one row under that hour.
SELECT owner, site, max(hour, :oldest), sum(seconds) FROM spent GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: fold_spent
-- Sum up what is older than any window under hour 0.
INSERT INTO spent (owner, site, hour, seconds)
SELECT owner, site, 0, sum(seconds) FROM spent WHERE hour < :before GROUP BY owner, site
ON CONFLICT (owner, site, hour) DO UPDATE SET seconds = excluded.seconds;

-- name: drop_spent
-- Delete the rows that were summed up.
DELETE FROM spent WHERE hour > 0 AND hour < :before;

-- name: drop_acct
-- Delete rows from before an hour.
WITH RECURSIVE people (name) AS (
    SELECT min(owner) FROM acct
    UNION ALL
    SELECT (SELECT min(owner) FROM acct WHERE owner > name) FROM people WHERE name IS NOT NULL
)
DELETE FROM acct WHERE owner IN (SELECT name FROM people) AND hour < :before;

-- name: sum_acct
-- Rows of some owners (as one text, none: all) summed by the columns whose values are 1.
WITH RECURSIVE people (name) AS (
    SELECT min(owner) FROM acct
    UNION ALL
    SELECT (SELECT min(owner) FROM acct WHERE owner > name) FROM people WHERE name IS NOT NULL
)
SELECT
    CASE WHEN :owner THEN owner END, CASE WHEN :site THEN site END, CASE WHEN :host THEN host END,
    CASE WHEN :pilot THEN pilot END, CASE WHEN :run THEN run END, CASE WHEN :day THEN hour / 24 END,
    sum(useful), sum(failed), sum(lost), sum(duplicated), sum(tasks), sum(queued), sum(staging)
FROM people CROSS JOIN acct ON acct.owner = people.name AND hour >= :since AND hour < :until
WHERE :owners = '' OR instr(:owners, ',' || name || ',') > 0
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6 LIMIT :limit;

-- name: sum_used
-- Core time of everybody by pilot, and by day where its value is 1.
WITH RECURSIVE people (name) AS (
    SELECT min(owner) FROM acct
    UNION ALL
    SELECT (SELECT min(owner) FROM acct WHERE owner > name) FROM people WHERE name IS NOT NULL
)
SELECT pilot, CASE WHEN :day THEN hour / 24 END, sum(useful + failed + lost + duplicated)
FROM people CROSS JOIN acct ON acct.owner = people.name AND hour >= :since AND hour < :until
GROUP BY 1, 2;

-- name: pilots_between
-- Pilots that were enrolled within a time, with what they offered.
SELECT pilot, site, host, cores, joined, ended FROM pilots
WHERE joined < :until AND ifnull(ended, :until) > :since
    AND (:holders = '' OR instr(:holders, ',' || CASE WHEN owner = '' THEN '@' || grp ELSE owner END || ',') > 0);

-- name: put_usage
-- Insert what an owner used or overwrite it.
INSERT INTO usage (owner, data) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET data = excluded.data;

-- name: all_usage
-- What everybody used.
SELECT * FROM usage ORDER BY owner;

-- name: put_place
-- Insert a pilot, host or site that failed lately, or overwrite it.
INSERT INTO places (holder, kind, name, data) VALUES (?, ?, ?, ?)
ON CONFLICT (holder, kind, name) DO UPDATE SET data = excluded.data;

-- name: drop_place
-- Delete a pilot, host or site that works again.
DELETE FROM places WHERE holder = ? AND kind = ? AND name = ?;

-- name: all_places
-- Every pilot, host or site that failed lately.
SELECT * FROM places ORDER BY holder, kind, name;

-- name: add_policy
-- Append a version of the policy.
INSERT INTO policy (version, time, author, document) VALUES (?, ?, ?, ?);

-- name: newest_policy
-- The policy in force.
SELECT * FROM policy WHERE version = (SELECT max(version) FROM policy);
