"""Python calls as tasks: executor, futures, the stream of calls and results."""
