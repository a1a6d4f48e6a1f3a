"""The pilot's side of function calls: runner processes and the calls they are given."""
