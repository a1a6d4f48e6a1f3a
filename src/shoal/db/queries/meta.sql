-- Values about the database itself.

-- name: get_meta
-- One value by its key.
SELECT value FROM meta WHERE key = :key;

-- name: set_meta
-- Change one value.
UPDATE meta SET value = :value WHERE key = :key;

-- name: raise_bases
-- The last server crashed: it may have leased the first attempt of any task of an open run without writing it.
UPDATE runs SET base = base + 1 WHERE finished IS NULL;

-- name: add_event_bytes
-- Keep the journal's estimated size, whether it grows or shrinks.
UPDATE meta SET value = value + :bytes WHERE key = 'event_bytes';

-- name: count_all
-- Counts of everything; tasks count whether they have rows or not.
SELECT count(*) AS runs, count(*) - count(finished) AS open_runs, ifnull(sum(total), 0) AS tasks FROM runs;
