"""The command line: one file per noun. Translates every error into one line and an exit status."""
