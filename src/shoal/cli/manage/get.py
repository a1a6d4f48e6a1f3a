"""`shoal get`: the outputs of tasks that ran where your files are not seen."""

from __future__ import annotations

import os

import click

from shoal.cli.completion import complete_runs
from shoal.cli.output.kept_outputs import fetch_outputs, outputs_of
from shoal.cli.output.tables import clean, print_json, print_table
from shoal.cli.session import Session, common_options, say
from shoal.model.errors import BadInput
from shoal.model.quantities import many, show_size
from shoal.report.data_source import HttpSource


@click.command()
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--to", metavar="DIR", help="Where to [default: this directory, if it is the run's].")
@click.option("--force", is_flag=True, help="Replace files that are newer than the outputs, too.")
@click.option("--list", "is_list", is_flag=True, help="Only list them.")
@common_options
def get(
    run: str, patterns: tuple[str, ...], to: str | None, force: bool, is_list: bool, as_json: bool, server: str | None
) -> None:
    """Fetch the declared outputs of tasks that ran on hosts which do not see your files.

    Those commands keep their outputs on the server. `shoal run`, `sweep` and `wait` fetch them at the end; this command fetches
    them again, or those of a run that nobody waited for. A file that is there already with the same content, or that was
    written after its task ended, is left as it is. What a task stores elsewhere (--store) is not fetched; to s3://... and other
    URLs of fsspec this command brings it.

    \b
    Examples:
      shoal get r12
      shoal get r12 'out/*.json' --to results
      shoal get r12 --list
    """
    session = Session(server)
    run = session.find_run(run)
    with session.client_for(run) as client:
        source = HttpSource(client)
        if is_list:
            found = list(outputs_of(source, run, patterns))
            if as_json:
                print_json(
                    {
                        "outputs": [
                            {"task": one.task, "name": one.name, "place": one.place, **one.file._asdict()}
                            for one in found
                        ]
                    }
                )
                return
            rows = [
                (one.task, clean(one.name), show_size(one.file.size), clean(one.file.url or one.place or "server"))
                for one in found
            ]
            print_table(("task", "output", "size", "where"), rows, f"{run} has no outputs on the server")
            return
        cwd = str(source.run(run)["cwd"])
        if to is None and os.path.realpath(cwd) != os.path.realpath(os.curdir):
            raise BadInput(
                f"{run} was submitted from another directory, {clean(cwd)}", code="other_directory", field="--to",
                hint="go there, or say where to: --to DIR",
            )  # fmt: skip
        folder = os.path.abspath(to or os.curdir)
        done = fetch_outputs(client, source, run, folder, patterns, force)
    if as_json:
        print_json({"directory": folder, **done._asdict()})
    else:
        same = f"; {many(done.same, 'file')} there already" if done.same else ""
        same += f"; {many(done.stored, 'file')} stored where the tasks say" if done.stored else ""
        same += f"; {many(done.newer, 'file')} left that are newer (--force replaces them)" if done.newer else ""
        say(f"{many(done.files, 'file')}, {show_size(done.size)}, fetched to {clean(folder)}{same}")
