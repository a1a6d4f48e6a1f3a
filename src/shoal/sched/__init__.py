"""Choices, as pure functions: what fits where, and how much at once. Standard library only, Python 3.9 valid."""
