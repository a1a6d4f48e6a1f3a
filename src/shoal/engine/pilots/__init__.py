"""Pilots: registration, exchanges, reconciliation of what they hold, silence and loss, bans."""
