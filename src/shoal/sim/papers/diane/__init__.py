"""Experiments of the thesis on the user-level overlay [DIANE]: `u.*`."""
