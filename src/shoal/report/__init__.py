"""The journal read back: rows of results, what happened. Reads from a server or from the database file."""
