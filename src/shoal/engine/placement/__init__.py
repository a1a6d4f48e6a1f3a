"""Where tasks are directed: the weather of sites, the question of a plan, and its use in matching."""
