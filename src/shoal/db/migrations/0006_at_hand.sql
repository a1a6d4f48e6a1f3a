-- At hand: runs can be removed.

-- The highest number of a removed run, which is not used again; and which runs show results of an earlier one.
INSERT INTO meta (key, value) VALUES ('last_removed', 0);
CREATE INDEX tasks_reused ON tasks (reused, run) WHERE reused <> '';
-- How many tasks of a run may run at once; NULL: as many as there is capacity for.
ALTER TABLE runs ADD COLUMN max_running INTEGER;
