"""One file per kind of call: what a route does once its caller was authorised."""
