-- The journal. Lists of kinds come as one text, ",task_finished,run_finished,"; none: all.

-- name: add_event
-- Append one event; its number must be new.
INSERT INTO events (seq, time, kind, run, task, attempt, pilot, site, data, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_success_events
-- Append the last events of tasks that succeeded together: what they share, then what differs.
INSERT INTO events (seq, time, kind, run, task, attempt, pilot, site, data, owner)
SELECT column1, ?1, 'task_finished', ?2, column2, ?3, ?4, ?5, column3, ?6 FROM (VALUES (?, ?, ?));

-- name: last_event
-- The highest number still in the journal.
SELECT ifnull(max(seq), 0) FROM events;

-- name: last_time
-- When the newest event was written.
SELECT time FROM events WHERE seq = (SELECT max(seq) FROM events);

-- name: list_events
-- Events after a number, up to another: a search for few among many continues with the next query.
SELECT * FROM events
WHERE seq > :after AND seq <= :until AND (:holders = '' OR instr(:holders, ',' || owner || ',') > 0)
    AND (:kinds = '' OR instr(:kinds, ',' || kind || ',') > 0) ORDER BY seq LIMIT :limit;

-- name: list_run_events
-- Events of one run after a number.
SELECT * FROM events
WHERE run = :run AND seq > :after AND (:kinds = '' OR instr(:kinds, ',' || kind || ',') > 0) ORDER BY seq LIMIT :limit;

-- name: task_events
-- Events about one task, and those about several tasks of its run at once.
SELECT * FROM events WHERE run = :run AND (task = :element OR task IS NULL) ORDER BY seq;

-- name: naming_events
-- Events that name attempts of several runs, and this one among them, written while its run was open.
SELECT * FROM events
WHERE run IS NULL
    AND seq >= (SELECT min(seq) FROM events WHERE run = :run)
    AND seq <= (
        SELECT CASE WHEN finished IS NULL THEN 9223372036854775807 ELSE (SELECT max(seq) FROM events WHERE run = :run) END
        FROM runs WHERE run = :run
    )
    AND kind IN ('tasks_leased', 'tasks_started') AND instr(data, :needle) > 0
ORDER BY seq;

-- name: oldest_events
-- Number, time and size of the oldest events; `length` counts characters, as the writer does.
SELECT seq, time, length(data) FROM events ORDER BY seq LIMIT :limit;

-- name: drop_events
-- Delete all events up to a number.
DELETE FROM events WHERE seq <= :seq;
