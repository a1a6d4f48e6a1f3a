"""The database: one writer (`sqlite.Database`), readers beside it (`reader.Reader`), SQL in `queries/`."""
