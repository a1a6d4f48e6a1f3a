"""The process that gets machines for one person: it asks a server what is wanted, and sites for pilots [ADR 0045]."""
