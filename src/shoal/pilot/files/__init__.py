"""Files by their digest on this host: the cache that its pilots share, and the places that a file is fetched from."""
