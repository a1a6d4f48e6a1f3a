-- Runs and their arrays. `SELECT *` is the row type of engine/changes.py: a test holds columns and fields together,
-- and a database of another schema is never read.

-- name: put_run
-- Insert a run or overwrite it whole.
INSERT INTO runs (run, owner, name, created, finished, total, counts, cwd, seed, max_fail, key, digest, labels, signature, env_file, open, nonce, base, max_running, due, notify)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET
    owner = excluded.owner, name = excluded.name, created = excluded.created, finished = excluded.finished,
    total = excluded.total, counts = excluded.counts, cwd = excluded.cwd, seed = excluded.seed,
    max_fail = excluded.max_fail, key = excluded.key, digest = excluded.digest, labels = excluded.labels,
    signature = excluded.signature, env_file = excluded.env_file, open = excluded.open,
    nonce = excluded.nonce, base = excluded.base, max_running = excluded.max_running, due = excluded.due, notify = excluded.notify;

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

-- name: add_notice
-- Something is to be told.
INSERT INTO notices (seq, target, run, owner, time, what, text, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_notice
-- It was told, or given up.
DELETE FROM notices WHERE seq = ? AND target = ?;

-- name: list_notices
-- What is to be told, oldest first.
SELECT * FROM notices WHERE (seq, target) > (:seq, :target) ORDER BY seq, target LIMIT :limit;

-- name: alike_runs
-- The newest runs of an owner after a run whose first table has this command, and of which something succeeded.
SELECT arrays.run FROM arrays JOIN runs ON runs.run = arrays.run
WHERE arrays.run > :after AND arrays.first = 1 AND runs.owner = :owner AND runs.counts LIKE '%"succeeded"%'
    AND length(arrays.task) < 100000
    AND json_extract(arrays.task, '$.command') IS :command AND json_extract(arrays.task, '$.shell') IS :shell
    AND json_extract(arrays.task, '$.function') IS NULL
ORDER BY arrays.run DESC LIMIT :limit;

-- name: put_partial
-- Insert what the tasks of a run emitted, or overwrite it whole.
INSERT INTO partials (run, reduce, until, reached, tasks, merged) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET
    reduce = excluded.reduce, until = excluded.until, reached = excluded.reached, tasks = excluded.tasks,
    merged = excluded.merged;

-- name: get_partial
-- What the tasks of a run emitted.
SELECT * FROM partials WHERE run = :run;

-- name: list_goals
-- The goals of runs from one to another.
SELECT run, until, reached FROM partials WHERE run BETWEEN :low AND :high AND until <> '';

-- name: drop_partial
-- Remove what the tasks of a run emitted.
DELETE FROM partials WHERE run = :run;

-- name: put_growth
-- Insert the rules of a run, or overwrite them whole.
INSERT INTO growths (run, rules, since, watching, stopped) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET
    rules = excluded.rules, since = excluded.since, watching = excluded.watching, stopped = excluded.stopped;

-- name: put_grown
-- A file that a rule took, or the task that it became.
INSERT INTO grown (run, rule, file, size, seen, element) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run, rule, file) DO UPDATE SET element = excluded.element;

-- name: put_plan
-- Insert the planning state of a run, or overwrite it.
INSERT INTO plans (run, stage, data) VALUES (?, ?, ?)
ON CONFLICT (run) DO UPDATE SET stage = excluded.stage, data = excluded.data;

-- name: get_plan
-- The planning state of a run.
SELECT * FROM plans WHERE run = :run;

-- name: drop_plan
-- Remove the planning state of a run.
DELETE FROM plans WHERE run = :run;

-- name: get_growth
-- The rules of a run.
SELECT * FROM growths WHERE run = :run;

-- name: grown_files
-- The files that the rules of a run took.
SELECT * FROM grown WHERE run = :run;

-- name: grown_tasks
-- The tasks that rules of a run made, each with the number of its files; element 0: files that wait.
SELECT rule, element, count(*) AS files FROM grown WHERE run = :run GROUP BY rule, element;

-- name: drop_growth
-- Remove the rules of a run.
DELETE FROM growths WHERE run = :run;

-- name: drop_grown
-- Remove the files that they took.
DELETE FROM grown WHERE run = :run;

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
