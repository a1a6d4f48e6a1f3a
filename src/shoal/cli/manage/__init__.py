"""Commands that keep a person's work in order: change, copy and remove runs, look at files of running tasks."""
