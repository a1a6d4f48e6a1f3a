"""The central process: HTTP edge, group commit, loops. It decides nothing: the engine does."""
