"""`python -m shoal.server`."""

import sys

from shoal.server.main import main

sys.exit(main())
