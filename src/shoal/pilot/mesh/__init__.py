"""The pilot as a peer of its site: it finds files at other pilots and serves what it has [LBO D2; ADR 0048]."""
