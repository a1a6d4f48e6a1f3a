"""`python -m shoal.server`: an embedded server's pilot is started first, since both take a while to import themselves."""

import gc
import sys

from shoal.server import pilot_process

if __name__ == "__main__":
    gc.disable()  # until everything is imported and restored: next to nothing of that is garbage
    with pilot_process.started_ahead(sys.argv[1:]):
        from shoal.server.main import main

        code = main()
    sys.exit(code)
