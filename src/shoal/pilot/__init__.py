"""The pilot: pure decisions (`agent`) and the loop that performs them. Standard library only, Python 3.9; becomes pilot.pyz."""
