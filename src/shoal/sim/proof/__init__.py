"""Worlds with faults in which every promise is checked after each step."""
