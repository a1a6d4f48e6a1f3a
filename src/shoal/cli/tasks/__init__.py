"""Commands about runs and tasks."""
