"""Workflows before they are submitted: graphs of tasks, and the formats that they are read from. Pure; files are read by
functions that are passed in."""
