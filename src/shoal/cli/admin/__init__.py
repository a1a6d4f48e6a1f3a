"""Commands about people, tokens, policy, accounts and retention."""
