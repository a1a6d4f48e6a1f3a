"""What this host is and does: probe, usage, tags, disk space, other pilots, threads for files, logging."""
