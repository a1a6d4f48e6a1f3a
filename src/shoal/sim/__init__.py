"""The simulator: the real engine, database and agents on a virtual clock, with a network and hosts that fail."""
