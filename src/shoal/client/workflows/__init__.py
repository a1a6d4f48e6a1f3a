"""`shoal.Workflow`: workflows built in Python, of commands and of functions."""
