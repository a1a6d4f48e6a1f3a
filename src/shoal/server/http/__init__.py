"""The HTTP edge: connections, rate limits, routes, requests and their checks."""
