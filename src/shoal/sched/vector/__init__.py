"""Choices over many tasks and pilots at once, with numpy and scipy: the server's side only, never in the pilot zip."""
