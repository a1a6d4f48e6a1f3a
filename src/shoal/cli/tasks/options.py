"""Commands that take another command: everything after `--` is that command, verbatim."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import click

from shoal.cli.arguments.script import command_of, is_script, lacks_interpreter, options_of
from shoal.cli.output.tables import clean, shorten
from shoal.model.task.spec import FIELDS
from shoal.model.task.task_field import UNITS, Field

F = TypeVar("F", bound=Callable[..., Any])
# Keys of the context's metadata: all arguments as typed, and those after `--` (absent if there was none).
RAW = "shoal.raw"
COMMAND = "shoal.command"
SCRIPT = "shoal.script"  # the script that is run, if it is one


_LIKE_FILE = re.compile(r"/|\.[A-Za-z]\w{0,4}$")  # `job.sh`, `./job`
WORKFLOW = ".dag"  # how names of files with DAGMan's workflows end
OTHER = "This command"
# Options of run, sweep and submit by their parameters, as --help shows them.
OPTION_GROUPS: dict[str, tuple[str, ...]] = {
    "Every day": (
        "name", "cores", "memory", "time", "gpus", "retries", "array", "units", "max_running", "after", "shell", "resume",
        "dry_run",
    ),
    "Which pilots, and when": (
        "site", "require", "rank", "max_memory", "disk", "licences", "container", "setup", "priority", "deadline", "order",
        "after_any", "strict",
    ),
    "Files and surroundings": (
        "cwd", "env", "stdin", "stdout", "stderr", "max_output", "inputs", "outputs", "store", "checkpoint",
        "checkpoint_every",
    ),
    "A recorded workflow": ("replay", "speed", "scale", "ledger"),
    "The run as a whole": (
        "by", "within", "plan", "yes", "reduce", "until", "notify", "max_fail", "abort_on", "unless_exit", "rerun", "label",
        "seed", "key",
    ),
    OTHER: ("quiet", "as_json", "server", "help"),
}  # fmt: skip


class CommandWithArguments(click.Command):
    """A click command that splits its arguments at the first `--`, and explains a missing one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        raw = ctx.meta[RAW] = list(args)
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            return super().parse_args(ctx, args[:at])
        start = None if ctx.resilient_parsing else first_argument(self, ctx, raw)
        if start is not None and lacks_interpreter(raw[start]):
            shown = clean(shlex.join([*ctx.command_path.split(), *raw[:start], "--", "sh", *raw[start:]]))
            hint = f"begin it with #!/bin/sh, or write: {shorten(shown, 200)}"
            raise click.UsageError(f"{clean(shorten(raw[start]))} does not begin with #! ({hint})", ctx)
        if start is not None and is_script(raw[start]):
            # As with sbatch, what stands behind the script is for the script.
            ctx.meta[SCRIPT], ctx.meta[COMMAND] = raw[start], [*command_of(raw[start]), *raw[start + 1 :]]
            return super().parse_args(ctx, [*options_of(self, ctx, raw[start]), *raw[:start]])
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if start is None or is_file_name(raw[start]):
                raise
            raise missing_dashes(ctx, raw[:start], raw[start:], error) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in groups, those of every day first."""
        shown = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
        left = {param.name: record for param in shown if (record := param.get_help_record(ctx)) is not None}
        widest = max(len(name) for name, _ in left.values())
        for title, names in OPTION_GROUPS.items():
            rows = [left.pop(name) for name in names if name in left]
            rows += list(left.values()) if title == OTHER else []  # an option that is in no group
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(widest), about) for name, about in rows])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def is_file_name(argument: str) -> bool:
    """True if an argument names a task file, or a workflow."""
    return argument.endswith((".toml", ".json", WORKFLOW))


def first_argument(command: click.Command, ctx: click.Context, raw: list[str]) -> int | None:
    """The index of the first argument that is neither an option nor an option's value."""
    takes_value = {
        name for param in command.get_params(ctx) if isinstance(param, click.Option) and not param.is_flag
        for name in param.opts
    }  # fmt: skip
    at = 0
    while at < len(raw):
        if not raw[at].startswith("-"):
            if "=" not in raw[at] or command.name == "run":
                return at
            at += 1  # a parameter of a sweep
        else:
            at += 2 if raw[at] in takes_value else 1
    return None


def missing_dashes(
    ctx: click.Context, before: list[str], command: list[str], cause: click.NoSuchOption | None = None
) -> click.UsageError:
    """The error for a command without `--` before it."""
    whole = shorten(clean(shlex.join([*ctx.command_path.split(), *before, "--", *command])), 200)
    what = f"there is no option {cause.option_name}; " if cause is not None else ""
    name = clean(shorten(command[0]))
    if os.path.isdir(command[0]):
        return click.UsageError(f"{name} is a directory (name a script or a task file, or a command after --)", ctx)
    is_script_name = _LIKE_FILE.search(command[0]) is not None and not is_file_name(command[0])
    if is_script_name and not os.path.exists(command[0]) and shutil.which(command[0]) is None:
        return click.UsageError(f"there is no script {name}; a command goes after -- (write: {whole})", ctx)
    return click.UsageError(f"{what}put -- before the command (write: {whole})", ctx)


def options(*parts: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, shown in this order."""

    def apply(command: F) -> F:
        for part in reversed(parts):
            command = part(command)
        return command

    return apply


def _chance(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """`95%` or `0.95` as a number."""
    if value is None:
        return None
    try:
        found = float(value.removesuffix("%")) / (100.0 if value.endswith("%") else 1.0)
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1.0:
        raise click.UsageError(
            f"--plan {clean(shorten(value))!r} is no chance (write --plan 95% or --plan 0.95)", context
        )
    return found


RUN_OPTIONS = options(
    click.option("--name", help="A name for the run, shown in listings."),
    click.option("--dry-run", is_flag=True, help="Check everything and show what would be submitted; submit nothing."),
    click.option("-j", "--jobs", "max_running", type=int, metavar="N", help="Run at most N tasks of the run at once."),
    click.option("--max-fail", type=int, metavar="N", help="Cancel the rest when N tasks have failed."),
    click.option(
        "--reduce",
        multiple=True,
        metavar="NAME=REDUCER",
        help="How values of NAME that tasks emit are merged: mean, sum, hist(0,10,50), best(5), ... (repeat for more).",
    ),
    click.option("--until", metavar="GOAL", help="Stop the rest once this holds, e.g. 'rel_err(x) < 0.01'."),
    click.option(
        "--by", metavar="TIME", help="When all of it shall be done, e.g. 08:00: says at once how likely that is."
    ),
    click.option("--within", metavar="TIME", help="The same as a time from now on, e.g. 6h."),
    click.option(
        "--plan",
        metavar="CHANCE",
        callback=_chance,
        help="Let the server plan it first: what --resume finds, when it ends. With a deadline it starts by itself from this "
        "chance on, e.g. 95%; else after `shoal accept`.",
    ),
    click.option("--yes", is_flag=True, help="Ask nothing, however unlikely it is."),
    click.option(
        "--notify",
        multiple=True,
        metavar="URL|COMMAND",
        help="Tell this of the end, the first failure, and a deadline at risk (repeat for more).",
    ),
    click.option("--resume", is_flag=True, help="Take over results of an equal earlier run; run only what is missing."),
    click.option("--label", multiple=True, metavar="K=V", help="A label for the run (repeat for more)."),
    click.option("--seed", type=int, help="The run's random seed; each task gets its own $SHOAL_SEED from it."),
    click.option("--key", help="Idempotency key: the same key and content never run twice."),
    click.option("--strict", is_flag=True, help="Refuse tasks that no pilot which is connected could ever run."),
)


def task_options(fields: Mapping[str, Field] = FIELDS, without: Collection[str] = ()) -> Callable[[F], F]:
    """The options that the table of task fields declares, in its order."""
    made = []
    for field in fields.values():
        if field.option is not None and field.name not in without:
            names, about, kind = (f"--{field.option_name}", field.name), field.option.help, field.kind.json
            if not field.option.metavar:
                made.append(click.option(*names, is_flag=True, help=about))
                continue
            number = int if field.kind is UNITS else kind if kind in (int, float) else None
            repeats = field.kind.option != "one"
            made.append(click.option(*names, metavar=field.option.metavar, help=about, type=number, multiple=repeats))
    return options(*made)


QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="No progress; only the output and errors.")
