"""The pilot: a pure machine (`agent`) and its hands. Standard library only, Python 3.9 valid; becomes pilot.pyz."""
