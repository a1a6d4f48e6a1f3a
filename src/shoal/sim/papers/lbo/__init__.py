"""Experiments of the paper on distributed scheduling and data sharing [LBO]: `d.*`."""
