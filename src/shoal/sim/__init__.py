"""The false world: the product's own engine and agents on a virtual clock, with a network and hosts that fail."""
