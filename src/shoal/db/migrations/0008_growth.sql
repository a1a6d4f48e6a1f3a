-- Rules that make tasks of files: the rules of each run, and the files that they took.

CREATE TABLE growths (
    run INTEGER PRIMARY KEY,
    rules TEXT NOT NULL,
    since REAL NOT NULL,
    watching INTEGER NOT NULL,
    stopped INTEGER NOT NULL
) STRICT;

-- `element`: first element of the task that has the file; 0: it waits.
CREATE TABLE grown (
    run INTEGER NOT NULL,
    rule INTEGER NOT NULL,
    file TEXT NOT NULL,
    size INTEGER NOT NULL,
    seen REAL NOT NULL,
    element INTEGER NOT NULL,
    PRIMARY KEY (run, rule, file)
) STRICT, WITHOUT ROWID;
CREATE INDEX grown_elements ON grown (run, rule, element);
