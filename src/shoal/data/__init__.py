"""Files on hosts: what a cache holds and lets go, and where a file is looked for. Pure: no clock, disk or socket."""
