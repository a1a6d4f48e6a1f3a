"""Commands that work on a virtual clock: simulate, replay, and the papers' experiments."""
