"""Why something waits, in plain words, from the state and functions that decide."""
