"""The data model: tasks, attempts, pilots, events, states, bounds. Standard library only, Python 3.9 valid."""
