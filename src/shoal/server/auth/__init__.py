"""Authentication and authorisation: tokens, people, certificates, lockouts."""
