"""What exchanges may bring besides a pilot's own news: bounds, reports kept by others, bundles of a leader."""
