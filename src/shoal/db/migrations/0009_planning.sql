-- Planning states of runs that the server plans before they start.

CREATE TABLE plans (
    run INTEGER PRIMARY KEY,
    stage TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
