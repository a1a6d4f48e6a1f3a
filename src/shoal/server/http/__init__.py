"""HTTP: connections, rate limits, routes, requests and their checks."""
