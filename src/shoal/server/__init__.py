"""The server process: HTTP, group commit, periodic tasks. It makes no decisions: the engine does."""
