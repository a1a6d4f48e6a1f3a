"""Runs read back as workflows: their trace for others, and how far each level is."""
