"""Why something waits, from the state and functions that decide."""
