"""What a task is: its specification, the table of its fields, their checks, sweeps."""
