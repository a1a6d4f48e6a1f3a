"""Formats of workflows, each read into the vertices of `flow/dag.py`."""
