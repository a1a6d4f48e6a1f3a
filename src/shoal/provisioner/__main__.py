"""`python -m shoal.provisioner [--server URL]`: get machines for this person until nothing is left to do."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from types import FrameType

from shoal.client.config import find_target
from shoal.client.connection.embedded_server import state_dir
from shoal.client.connection.provisioner_process import folder_of, only_one
from shoal.provisioner.loop import Provisioner
from shoal.provisioner.site_file import SiteFile


def main() -> int:
    """Run; 0 also if another one runs already."""
    parser = argparse.ArgumentParser(
        prog="shoal.provisioner", description="Get machines for your tasks from your sites."
    )
    parser.add_argument("--server", metavar="URL", help="the server whose tasks shall run")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    target = find_target(chosen.server)
    folder = folder_of(target.url, state_dir())
    signal.signal(signal.SIGTERM, _end)
    while True:
        with only_one(folder) as is_ours:
            if not is_ours:
                return 0
            provisioner = Provisioner(target, SiteFile(folder))
            provisioner.run()
        # A command that came while this one was about to end found it running, and started no other.
        if not provisioner.has_work():
            return 0


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
