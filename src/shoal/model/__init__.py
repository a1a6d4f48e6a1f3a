"""Words: what a task, an attempt, a pilot and an event are. Standard library only, Python 3.9 valid."""
