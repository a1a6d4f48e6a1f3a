"""Shares, quotas, licences and accounts as the engine keeps them."""
