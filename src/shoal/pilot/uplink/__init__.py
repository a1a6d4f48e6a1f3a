"""The connection to the server: address, TLS, requests, uploads and downloads."""
