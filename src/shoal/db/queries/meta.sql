-- What a database knows of itself.

-- name: get_meta
-- One fact by its key.
SELECT value FROM meta WHERE key = :key;

-- name: set_meta
-- Change one fact.
UPDATE meta SET value = :value WHERE key = :key;

-- name: raise_bases
-- The last server crashed: it may have handed out the first attempt of any task of an open run and not written it down.
UPDATE runs SET base = base + 1 WHERE finished IS NULL;

-- name: add_event_bytes
-- Keep the journal's estimated size, whether it grows or shrinks.
UPDATE meta SET value = value + :bytes WHERE key = 'event_bytes';

-- name: count_all
-- How much there is: tasks as people count them, whether they have rows or not.
SELECT count(*) AS runs, count(*) - count(finished) AS open_runs, ifnull(sum(total), 0) AS tasks FROM runs;
