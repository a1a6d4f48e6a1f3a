"""Experiments of the paper on GWpilot [GWP]: `g.*`."""
