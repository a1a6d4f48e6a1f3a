-- How many tasks of a run may run at once; NULL: as many as there is capacity for.
ALTER TABLE runs ADD COLUMN max_running INTEGER;
