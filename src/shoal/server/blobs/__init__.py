"""Blobs on the server: which there are, whose they are, uploads and files."""
