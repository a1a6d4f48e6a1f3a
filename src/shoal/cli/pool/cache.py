"""`shoal cache ls|clean`: the files that hosts keep for tasks, by their digest."""

from __future__ import annotations

import os
import time

import click

from shoal.cli.output.describe import ago
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean as plain
from shoal.cli.output.tables import print_answer, print_json, print_table
from shoal.cli.session import Session, common_options, json_option
from shoal.model.errors import NotFound, echo
from shoal.model.quantities import many, parse_duration, show_size
from shoal.pilot.files.host_cache import HostCache, find_folder
from shoal.report.data_source import Json

_MEBI = 1 << 20
_DIR = click.option("--dir", "folder", metavar="DIR", help="The cache there [default: that of this host's pilots].")


@click.group()
def cache() -> None:
    """The files that a host keeps for the tasks of its pilots: each content once, for all of them.

    \b
    Examples:
      shoal cache ls
      shoal cache ls --site hpc
      shoal cache clean --unused 7d
    """


@cache.command()
@_DIR
@click.option("--pilot", metavar="PILOT", help="What this pilot says of its host's cache, instead.")
@click.option("--site", metavar="NAME", help="What the pilots of this site say, instead.")
@common_options
def ls(folder: str | None, pilot: str | None, site: str | None, as_json: bool, server: str | None) -> None:
    """List the files in this host's cache, and how much space there is.

    \b
    Examples:
      shoal cache ls
      shoal cache ls --json
      shoal cache ls --pilot p3f9c
    """
    if (pilot or site) and folder:
        raise click.UsageError("--dir is about this host (leave it out with --pilot and --site)")
    if pilot or site:
        _print_told(_told(Session(server), pilot, site), as_json)
        return
    here = HostCache(find_folder(folder, None, os.environ))
    files, (held, space, free) = here.listing(), here.space()
    if as_json:
        rows = [{"digest": one.digest, "bytes": one.size, "used": one.used, "in_use": one.is_in_use} for one in files]
        totals = {"directory": here.folder, "bytes": held, "space": space, "disk_free": free}
        print_json(iso_document({**totals, "files": rows}))
        return
    print_table(
        ("digest", "size", "used", "in use"),
        [(one.digest, show_size(one.size), ago(one.used), "yes" if one.is_in_use else "") for one in files],
        f"no files in {here.folder}",
    )
    if space:
        total = f"{many(len(files), 'file')}, {show_size(held)} of {show_size(space)}"
        click.echo(f"{total}; {show_size(free)} free on the disk of {plain(here.folder)}")


def _told(session: Session, pilot: str | None, site: str | None) -> list[Json]:
    """Rows of living pilots with what they say of their hosts' caches."""
    with session.source() as source:
        rows = [row for row in source.pilots("")["pilots"] if row["state"] != "gone"]
    if pilot is not None:
        rows = [row for row in rows if row["pilot"] == pilot]
        if not rows:
            raise NotFound(f"there is no pilot {echo(pilot)}", code="unknown_pilot", hint="shoal pilots lists them")
    return [row for row in rows if site is None or row["site"] == site]


def _print_told(rows: list[Json], as_json: bool) -> None:
    names = ("cache_files", "cache_mb", "cache_space_mb", "disk_available_mb")
    found = [(row, [row["tags"].get(name) for name in names]) for row in rows]
    if as_json:
        keys = ("pilot", "site", "host")
        print_json([{**{key: row[key] for key in keys}, **dict(zip(names, tags, strict=True))} for row, tags in found])
        return
    print_table(
        ("pilot", "site", "host", "files", "size", "of", "free on the disk"),
        [
            (row["pilot"], row["site"], row["host"], tags[0] or 0, *(_size(tag) for tag in tags[1:]))
            for row, tags in found
        ],
        "no pilot there",
    )


def _size(mebi: float | None) -> str:
    return "-" if mebi is None else show_size(mebi * _MEBI)


@cache.command()
@_DIR
@click.option("--unused", metavar="TIME", help="Only what nobody used for so long, such as 7d [default: all].")
@json_option
def clean(folder: str | None, unused: str | None, as_json: bool) -> None:
    """Remove files from this host's cache that nobody uses now.

    \b
    Examples:
      shoal cache clean
      shoal cache clean --unused 7d
    """
    before = time.time() - (parse_duration(unused, "--unused") if unused else 0.0)
    here = HostCache(find_folder(folder, None, os.environ))
    count, size = here.clean(before)
    left = len(here.listing())
    kept = f", {many(left, 'file')} left" if left else ""
    text = f"{many(count, 'file')} removed from {plain(here.folder)} ({show_size(size)}){kept}"
    print_answer({"removed": count, "bytes": size, "left": left}, as_json, text)
