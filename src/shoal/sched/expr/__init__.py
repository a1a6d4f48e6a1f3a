"""Requirements and ranks: a small infix language over a pilot's tags and a task's attributes [GWP 4.1]."""
