"""`shoal grow`: tell the rules of a run of files, or that no more will come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options, say
from shoal.client.working_directory import working_directory
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_TOLD_FILES
from shoal.model.quantities import first_of, many
from shoal.model.task.rule import is_taken

SHOWN = 3  # files that a note names


def file_below(name: str, base: str) -> str:
    """A file as it is seen from a directory; a name that is not there is taken as it is, for the file may be elsewhere."""
    if not os.path.lexists(name):
        return os.path.normpath(name)
    found = os.path.relpath(os.path.join(working_directory(), name), base)
    if found.startswith(".."):
        hint = "rules take files below that directory"
        raise BadInput(f"{echo(name)} is not below {echo(base)}", code="bad_path", field="files", hint=hint)
    return found


def notes_on(names: Iterable[str], patterns: Sequence[str], base: str) -> list[str]:
    """What a person should know of the files that they told: those that no rule takes, and those that are not here."""
    unwanted = [name for name in names if not any(is_taken(name, pattern) for pattern in patterns)]
    absent = [name for name in names if name not in unwanted and not os.path.lexists(os.path.join(base, name))]
    fits = "pattern" if len(patterns) == 1 else "patterns"
    return [
        *([f"note: no rule takes {_listed(unwanted)} ({fits}: {' '.join(patterns)})"] if unwanted else []),
        *([f"note: {_listed(absent)} {_is(absent)} not here, and taken as elsewhere"] if absent else []),
    ]


def _listed(names: Sequence[str]) -> str:
    return first_of([echo(name) for name in names], SHOWN)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--end", is_flag=True, help="No more files will come: what waits to be gathered is a rest.")
@common_options
def grow(run: str, files: tuple[str, ...], end: bool, as_json: bool, server: str | None) -> None:
    """Tell a run whose rules watch for files ([[rules]] with `watch`) that files are there.

    Servers that your commands start find files in the run's directory by themselves; a group's server is told. A file that
    the run knows already changes nothing, so telling twice is safe.

    \b
    Examples:
      shoal grow r12 raw/run7.dat raw/run8.dat
      shoal grow tier0 --end
    """
    if not files and not end:
        raise click.UsageError("say which files there are, or --end")
    session = Session(server)
    run = session.find_target(run)
    with session.client_for(run) as client:
        info = client.run(run)
        base = str(info["cwd"])
        told = {file_below(name, base): os.path.getsize(name) if os.path.isfile(name) else 0 for name in files}
        names, new, tasks = list(told), 0, 0
        for at in range(0, max(1, len(names)), MAX_TOLD_FILES):
            part = {name: told[name] for name in names[at : at + MAX_TOLD_FILES]}
            found = client.tell_files(run, part, end and at + MAX_TOLD_FILES >= len(names))
            new, tasks = new + int(found["files"]), tasks + int(found["tasks"])
    for note in notes_on(told, [row["pattern"] for row in info.get("rules") or () if row["watching"]], base):
        say(note)
    answer = {"run": run, "files": new, "tasks": tasks}
    print_answer(answer, as_json, f"{many(new, 'new file')}, {many(tasks, 'task')} made")
