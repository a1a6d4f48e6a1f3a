-- Runs and their arrays. `SELECT *` is the row type of engine/changes.py: a test holds columns and fields together,
-- and a database of another schema is never read.

-- name: put_run
-- Insert a run or overwrite it whole.
INSERT INTO runs (run, owner, name, created, finished, total, counts, cwd, seed, max_fail, key, digest, labels, signature, env_file, open, nonce, base, max_running)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET
    owner = excluded.owner, name = excluded.name, created = excluded.created, finished = excluded.finished,
    total = excluded.total, counts = excluded.counts, cwd = excluded.cwd, seed = excluded.seed,
    max_fail = excluded.max_fail, key = excluded.key, digest = excluded.digest, labels = excluded.labels,
    signature = excluded.signature, env_file = excluded.env_file, open = excluded.open,
    nonce = excluded.nonce, base = excluded.base, max_running = excluded.max_running;

-- name: add_array
-- Insert one spec of a run.
INSERT INTO arrays (run, first, size, name, task) VALUES (?, ?, ?, ?, ?);

-- name: set_table
-- Give a spec of a run other fields.
UPDATE arrays SET task = :task WHERE run = :run AND first = :first;

-- name: last_run
-- The highest run number that was ever used.
SELECT max(ifnull((SELECT max(run) FROM runs), 0), value) FROM meta WHERE key = 'last_removed';

-- name: drop_run
-- Remove a run.
DELETE FROM runs WHERE run = :run;

-- name: drop_arrays
-- Remove the specs of a run.
DELETE FROM arrays WHERE run = :run;

-- name: drop_spans
-- Remove the spans of a run.
DELETE FROM spans WHERE run = :run;

-- name: note_removed
-- Keep the number of a removed run from being used again.
UPDATE meta SET value = max(value, :run) WHERE key = 'last_removed';

-- name: drop_tasks
-- Remove some tasks of a run that was removed.
DELETE FROM tasks WHERE run = :run AND element IN (SELECT element FROM tasks WHERE run = :run ORDER BY element LIMIT :limit);

-- name: removed_runs
-- Removed runs whose tasks are still here: from one run of the table to the next, without reading the rows between.
WITH RECURSIVE found (run) AS (
    SELECT min(run) FROM tasks
    UNION ALL
    SELECT (SELECT min(run) FROM tasks WHERE run > found.run) FROM found WHERE found.run IS NOT NULL
)
SELECT run FROM found WHERE run IS NOT NULL AND run NOT IN (SELECT run FROM runs);

-- name: reused_from
-- A run that took over results of this one.
SELECT run FROM tasks WHERE reused >= 'r' || :run || '.' AND reused < 'r' || :run || '/' AND reused <> '' LIMIT 1;

-- name: open_runs
-- The runs that are not finished.
SELECT * FROM runs WHERE finished IS NULL ORDER BY run;

-- name: get_run
-- One run.
SELECT * FROM runs WHERE run = :run;

-- name: arrays_of_run
-- The specs of a run, in order.
SELECT * FROM arrays WHERE run = :run ORDER BY first;

-- name: show_arrays
-- The specs of a run, as readers see them.
SELECT first, size AS count, name, task FROM arrays WHERE run = :run ORDER BY first;

-- name: find_key
-- The run that an owner's idempotency key made.
SELECT run, digest FROM runs WHERE owner = :owner AND key = :key AND key <> '';

-- name: earlier_runs
-- An owner's runs whose signature begins so: what follows is JSON, or nothing, and so before a tilde.
SELECT run FROM runs
WHERE owner = :owner AND signature >= :signature AND signature < :signature || '~'
    AND signature <> '' AND :signature <> '';

-- name: list_runs
-- Runs newest first; each filter is off while its value is NULL.
SELECT * FROM runs
WHERE run < :before
    AND (:open IS NULL OR (finished IS NULL) = :open)
    AND (:owners = '' OR instr(:owners, ',' || owner || ',') > 0)
    AND (:prefix IS NULL OR substr(name, 1, length(:prefix)) = :prefix)
    AND (:glob IS NULL OR name GLOB :glob)
ORDER BY run DESC LIMIT :limit;

-- name: failed_runs
-- Runs of some owners of which something did not succeed, newest first.
SELECT run FROM runs
WHERE (:owners = '' OR instr(:owners, ',' || owner || ',') > 0)
    AND (counts LIKE '%"failed"%' OR counts LIKE '%"lost"%' OR counts LIKE '%"cancelled"%')
ORDER BY run DESC LIMIT :limit;

-- name: old_runs
-- Finished runs whose logs are past their time, in order.
SELECT run FROM runs WHERE run > :after AND finished < :before ORDER BY run LIMIT :limit;
