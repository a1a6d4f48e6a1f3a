"""One repetition of one case, in the system's own interpreter: child.py MODULE SYSTEM MEASURE COUNT RESULT.

Started by measure.py. The result is a file, because what a system leaves running may hold our output open for ever.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

from bench.peers.processes import adopt_orphans
from bench.peers.system import System


def main() -> None:
    """Run it, write the figures, and end without waiting for anybody's exit handlers."""
    module, name, measure, count, result = sys.argv[1:]
    adopt_orphans()
    try:
        systems: tuple[System, ...] = importlib.import_module(module).SYSTEMS
        system = next(s for s in systems if s.name == name)
        case = system.case(measure)
        assert case is not None
        figures = case.run(int(count))
        Path(result).write_text(json.dumps({"figures": figures, "version": system.version()}), encoding="utf-8")
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
