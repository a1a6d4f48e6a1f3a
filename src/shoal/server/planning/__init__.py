"""What the server does for a run before anything of it starts: one module for each step [SPHINX S1; ADR 0059]."""
