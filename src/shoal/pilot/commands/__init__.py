"""One command from its lease to its report: directory, environment, streams, files."""
