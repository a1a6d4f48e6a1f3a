"""The pilot's decisions: a pure state machine without clock, socket, disk or process."""
