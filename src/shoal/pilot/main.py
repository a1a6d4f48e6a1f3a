"""The pilot's entry point: the command line and the fork of the guards; `lifecycle` does the rest."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Callable, Optional

from shoal import __version__
from shoal.model.limits import MAX_SECONDS, MAX_TIME
from shoal.pilot.guard import guard, guards, proctree

# What the guard does not need is imported after it was forked, so that it stays small.


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse and check the command line; exits with 2 and one line of help if it is wrong."""
    parser = argparse.ArgumentParser(prog="pilot.pyz", description="Take tasks from a Shoal server and run them here.")
    parser.add_argument("--server-file", metavar="F", help="the server's server.json, with address and token")
    parser.add_argument("--server", metavar="URL", help="unix:/PATH, on this machine")
    parser.add_argument("--token-file", metavar="F", help="a file that holds the token (with --server)")
    parser.add_argument("--join-file", metavar="F", help="a file that holds the join string")
    parser.add_argument("--join-fd", type=int, metavar="N", help="an open file that holds the join string")
    parser.add_argument(
        "--wait-stdin", action="store_true", help="connect when standard input has a byte: a server starts beside us"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="offer so many cores (default: all we may use)")
    parser.add_argument("--site", default="", metavar="S", help="name of the site (default: the server says)")
    parser.add_argument("--work-dir", metavar="D", help="make our directory in D (default: $TMPDIR or /tmp)")
    parser.add_argument(
        "--cache-dir",
        metavar="D",
        help="keep files for the tasks of all pilots of this host in D (default: in /var/tmp)",
    )
    parser.add_argument(
        "--cache-max", metavar="SIZE", help="that cache and its reserve take at most so much, such as 20G"
    )
    parser.add_argument("--cache-reserve", metavar="SIZE", help="what of it stays free for what tasks write")
    parser.add_argument(
        "--storage", action="append", default=[], metavar="PREFIX=PLACE",
        help="files whose names begin with PREFIX are at PLACE here, a directory, http(s) or root URL; may be repeated",
    )  # fmt: skip
    parser.add_argument("--idle-end", type=float, metavar="S", help="end after S seconds without a task")
    parser.add_argument("--lifetime", type=float, metavar="S", help="end S seconds after the start, in order")
    parser.add_argument("--until", type=float, metavar="T", help="end at this Unix time, in order")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="NAME=VALUE", help="describe this host to tasks; may be repeated"
    )
    parser.add_argument(
        "--no-pid-namespace",
        action="store_true",
        help="let tasks see all processes of this host, also where we could give them a PID namespace",
    )
    parser.add_argument(
        "--no-cgroup", action="store_true", help="make no cgroups, also where we could: memory is watched all the same"
    )
    parser.add_argument(
        "--mesh", choices=("on", "off"), help="share files with other pilots of this site (default: on)"
    )
    parser.add_argument(
        "--mesh-port", type=_ports, metavar="A[-B]", help="be reached by them on a port of this range (default: any)"
    )
    parser.add_argument("--mesh-address", metavar="H", help="be reached by them at this address (default: found out)")
    parser.add_argument(
        "--shared-dir",
        metavar="D",
        help="a directory that all hosts of the site see: while the server is away reports are kept there, too, and "
        "the address of a server that moved",
    )
    parser.add_argument("--address-dir", metavar="D", help="look in D for addresses of a server that moved")
    parser.add_argument("--verbose", "-v", action="store_true", help="log every attempt")
    parser.add_argument("--version", action="version", version=f"shoal pilot {__version__}")
    options = parser.parse_args(argv)
    ways = (options.server_file, options.server, options.join_file, options.join_fd is not None)
    if sum(map(bool, ways)) != 1:
        parser.error("give --server-file, or --server and --token-file, or --join-file, or --join-fd")
    if bool(options.server) != bool(options.token_file):
        parser.error("--server and --token-file belong together")
    if options.join_fd is not None and options.join_fd < 0:
        parser.error("--join-fd is at least 0")
    if options.cores is not None and options.cores < 1:
        parser.error("--cores is at least 1")
    if options.lifetime is not None:
        if not 0 < options.lifetime <= MAX_SECONDS:
            parser.error("--lifetime is above 0, and ten years at most")
        options.until = min(options.until or float("inf"), time.time() + options.lifetime)
    if options.until is not None and not time.time() < options.until <= MAX_TIME:
        parser.error("the time of --until has passed, or is no Unix time")
    if options.tag:
        _check_tags(options.tag)
    if options.storage:
        _check_rules(parser, options.storage)
    if options.cache_max or options.cache_reserve:
        _read_sizes(parser, options)
    return options


def _ports(text: str) -> str:
    from shoal.model.errors import BadInput
    from shoal.model.quantities import parse_ports

    try:
        parse_ports(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _check_tags(texts: list[str]) -> None:
    from shoal.model.errors import BadInput
    from shoal.pilot.host.tags import parse_tags

    try:
        parse_tags(texts)
    except BadInput as error:
        print(f"pilot.pyz: {error}", file=sys.stderr)
        sys.exit(2)


def _check_rules(parser: argparse.ArgumentParser, texts: list[str]) -> None:
    from shoal.data.sources import parse_rule

    for text in texts:
        try:
            parse_rule(text)
        except ValueError as error:
            parser.error(f"--storage: {error}")


def _read_sizes(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from shoal.model.errors import BadInput
    from shoal.model.quantities import parse_size

    for name in ("cache_max", "cache_reserve"):
        text = getattr(options, name)
        if text is not None:
            try:
                setattr(options, name, parse_size(text if not text.isdigit() else int(text)))
            except BadInput as error:
                parser.error(f"--{name.replace('_', '-')}: {error}")


def main(pack: Optional[Callable[[], bytes]] = None) -> int:
    """Run a pilot; returns the exit code. `pack` makes the zip of the package that it runs from."""
    options = parse(sys.argv[1:])
    umask = os.umask(0o077)
    proctree.set_name("shoal-pilot")
    proctree.become_private()
    proctree.become_subreaper()
    count = guards.how_many(options.cores or len(os.sched_getaffinity(0)))
    launched, is_confined = guard.launch_all(count, not options.no_pid_namespace, private=options.join_fd)
    from shoal.pilot import lifecycle

    return lifecycle.run_pilot(options, umask, guards.Guards(launched), is_confined, pack)
