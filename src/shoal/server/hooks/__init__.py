"""What the server runs or calls for somebody: the ban hook, and notices of runs."""
