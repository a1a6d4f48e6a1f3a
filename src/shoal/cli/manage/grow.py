"""`shoal grow`: tell the rules of a run of files, or that no more will come."""

from __future__ import annotations

import os

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.tables import print_answer
from shoal.cli.session import Session, common_options
from shoal.client.working_directory import working_directory
from shoal.model.errors import BadInput, echo
from shoal.model.limits import MAX_TOLD_FILES
from shoal.model.quantities import many


def file_below(name: str, base: str) -> str:
    """A file as it is seen from a directory; a name that is not there is taken as it is, for the file may be elsewhere."""
    if not os.path.lexists(name):
        return os.path.normpath(name)
    found = os.path.relpath(os.path.join(working_directory(), name), base)
    if found.startswith(".."):
        hint = "rules take files below that directory"
        raise BadInput(f"{echo(name)} is not below {echo(base)}", code="bad_path", field="files", hint=hint)
    return found


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
        base = str(client.run_row(run)["cwd"])
        told = {file_below(name, base): os.path.getsize(name) if os.path.isfile(name) else 0 for name in files}
        names, new, tasks = list(told), 0, 0
        for at in range(0, max(1, len(names)), MAX_TOLD_FILES):
            part = {name: told[name] for name in names[at : at + MAX_TOLD_FILES]}
            found = client.tell_files(run, part, end and at + MAX_TOLD_FILES >= len(names))
            new, tasks = new + int(found["files"]), tasks + int(found["tasks"])
    answer = {"run": run, "files": new, "tasks": tasks}
    print_answer(answer, as_json, f"{many(new, 'new file')}, {many(tasks, 'task')} made")
