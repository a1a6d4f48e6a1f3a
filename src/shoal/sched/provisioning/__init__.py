"""Policies that decide how many pilots are asked for, and where. Use them through `sched/demand.py`."""
