"""The papers' experiments: each with its parameters and their sources, what the paper prints, and how agreement is judged."""
