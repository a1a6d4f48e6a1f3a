"""Worlds for planning: sites, batch queues, storage and pilots, and how long a workload takes there."""
