"""Blobs on the server: which exist, who holds them, uploads and files."""
