"""One server from the client's side: the connection to it, TLS, login, the embedded server."""
