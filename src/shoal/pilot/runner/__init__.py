"""Inside the submitter's interpreter: load functions, call them, record how each call ended."""
