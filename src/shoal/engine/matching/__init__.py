"""Which ready tasks a pilot gets: classes, eligibility, leases, rounds, chunks."""
