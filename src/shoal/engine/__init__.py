"""The queue as one pure machine: `handle(command, now)` in, `Outcome` out. No clock, socket, disk or thread."""
