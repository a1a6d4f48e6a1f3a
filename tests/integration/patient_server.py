"""A server that waits two minutes for its database's write lock instead of two seconds: a test can hold all commits up
and look around, however busy the machine is.

Run as `python patient_server.py -m shoal.server ...`.
"""

from __future__ import annotations

import sys

from shoal.db import sqlite
from shoal.server.main import main

if __name__ == "__main__":
    vars(sqlite)["_BUSY"] = 120.0
    sys.argv = sys.argv[2:]
    sys.exit(main())
