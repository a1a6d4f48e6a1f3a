"""Who is calling and what they may: tokens, people, certificates."""
