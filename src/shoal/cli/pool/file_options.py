"""`--mesh`, `--mesh-port` and `--mesh-address`: whether and where other pilots of its site reach a pilot; `--shared-dir`: what
they all see; `--storage`: which files its site has already."""

from __future__ import annotations

from collections.abc import Iterable

import click

from shoal.cli.tasks.options import options
from shoal.model.quantities import parse_ports

MESH_OPTIONS = options(
    click.option(
        "--mesh", type=click.Choice(["on", "off"]), help="Share files with other pilots of its site [default: on]."
    ),
    click.option("--mesh-port", metavar="A[-B]", help="Be reached by them on a port of this range [default: any]."),
    click.option("--mesh-address", metavar="HOST", help="Be reached by them at this address [default: found out]."),
    click.option(
        "--shared-dir",
        metavar="DIR",
        help="All hosts of the site see DIR: reports are kept there while the server is away, and its address if it moves.",
    ),
)

STORAGE_OPTION = click.option(
    "--storage", multiple=True, metavar="PREFIX=PLACE",
    help="Files whose names begin with PREFIX are at PLACE there, a directory, http(s) or root URL; may be repeated.",
)  # fmt: skip


def check_storage(rules: Iterable[str]) -> None:
    """Refuse what is no rule of names."""
    from shoal.data.sources import parse_rule  # few pilots have any

    for text in rules:
        try:
            parse_rule(text)
        except ValueError as error:
            raise click.UsageError(f"--storage: {error}") from None


def mesh_options(
    mesh: str | None, port: str | None, address: str | None, shared_dir: str | None
) -> tuple[tuple[str, object], ...]:
    """The options of the pilot for what was given, checked."""
    if port is not None:
        parse_ports(port)
    return ("--mesh", mesh), ("--mesh-port", port), ("--mesh-address", address), ("--shared-dir", shared_dir)
