"""The near side of the server's HTTP interface: connection, configuration, the embedded server. No engine, no db."""
