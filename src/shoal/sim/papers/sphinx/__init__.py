"""The experiment of the SPHINX paper, and what it leaves as future work: statements on deadlines."""
