"""Runs and tasks: submission, reports, failures, retries, checkpoints."""
