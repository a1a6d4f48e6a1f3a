"""The HTTP interface: requests and responses of people, blobs, and the part of HTTP/1.1 that is used."""
