"""The leader of a site and its followers: what a mesh keeps, who leads it, who starts what while the server is away, and what
they hand on for each other [LBO III.B; ADR 0056, 0062]."""
