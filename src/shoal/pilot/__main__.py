"""The pilot as it is installed: `python -I -S .../shoal/pilot/__main__.py`. On other hosts it runs from pilot.pyz.

Here its byte code is at hand, which the zip has not: a server's own pilot starts in half the time.
"""

import os
import sys

if __name__ == "__main__":
    # The last one, so that nothing beside this package takes the place of a module of the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from shoal.pilot.build_zip import pack
    from shoal.pilot.main import main

    sys.exit(main(pack))
