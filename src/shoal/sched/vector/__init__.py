"""Expressions over many task classes and pilots at once, with numpy: the server's side only, never in the pilot zip."""
