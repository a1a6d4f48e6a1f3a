"""Commands that take another command: everything after `--` is that command, verbatim."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.output.tables import clean, shorten

F = TypeVar("F", bound=Callable[..., Any])
# Where the context keeps all words as typed, and those after `--` (absent if there was none).
RAW = "shoal.raw"
COMMAND = "shoal.command"


class CommandWithArguments(click.Command):
    """A click command that splits its words at the first `--`, and says so when it was forgotten."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        raw = ctx.meta[RAW] = list(args)
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            return super().parse_args(ctx, args[:at])
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            start = first_word(self, ctx, raw)
            if start is None or is_file_name(raw[start]):
                raise
            raise forgotten(ctx, raw[:start], raw[start:], error) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def is_file_name(word: str) -> bool:
    """Does a word name a task file?"""
    return word.endswith(".toml")


def first_word(command: click.Command, ctx: click.Context, raw: list[str]) -> int | None:
    """Where the first word stands that is neither an option nor an option's value."""
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


def forgotten(
    ctx: click.Context, before: list[str], command: list[str], cause: click.NoSuchOption | None = None
) -> click.UsageError:
    """The line for a command without `--` before it."""
    whole = shorten(clean(shlex.join([*ctx.command_path.split(), *before, "--", *command])), 200)
    what = f"there is no option {cause.option_name}; " if cause is not None else ""
    return click.UsageError(f"{what}put -- before the command (write: {whole})", ctx)


def options(*parts: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, shown in this order."""

    def apply(command: F) -> F:
        for part in reversed(parts):
            command = part(command)
        return command

    return apply


RUN_OPTIONS = options(
    click.option("--name", help="A name for the run, shown in listings."),
    click.option("--dry-run", is_flag=True, help="Check everything and show what would be submitted; submit nothing."),
    click.option("--max-fail", type=int, metavar="N", help="Cancel the rest when N tasks have failed."),
    click.option("--resume", is_flag=True, help="Take over results of an equal earlier run; run only what is missing."),
    click.option("--label", multiple=True, metavar="K=V", help="A label for the run (repeat for more)."),
    click.option("--seed", type=int, help="The run's random seed; each task gets its own $SHOAL_SEED from it."),
    click.option("--key", help="Idempotency key: the same key and content never run twice."),
    click.option("--strict", is_flag=True, help="Refuse tasks that no pilot which is connected could ever run."),
)
TASK_OPTIONS = options(
    click.option("--cores", type=int, metavar="N", help="Cores a task uses [default: 1]."),
    click.option("--memory", metavar="SIZE", help="Memory a task may use, e.g. 4G; over it, it is stopped."),
    click.option("--disk", metavar="SIZE", help="Disk space a task needs, e.g. 10G."),
    click.option("--gpus", type=int, metavar="N", help="GPUs a task uses."),
    click.option("--time", metavar="TIME", help="Time limit of a task, e.g. 90s, 15m, 2h30m."),
    click.option("--retries", type=int, metavar="N", help="Try a failed task again, up to N times."),
    click.option("--rerun", metavar="CLASS", help="If a pilot is lost: safe (run again), exclusive, never."),
    click.option("--priority", type=float, metavar="X", help="Higher goes first."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set a variable (repeat for more)."),
    click.option("--cwd", metavar="DIR|own", help="Directory to run in; `own`: a fresh one per task."),
    click.option("--stdin", metavar="FILE", help="File for the standard input."),
    click.option("--input", "inputs", multiple=True, metavar="FILE", help="A file the task reads (repeat for more)."),
    click.option("--output", "outputs", multiple=True, metavar="FILE", help="A file it writes (repeat for more)."),
    click.option(
        "--require", metavar="EXPR", help="Pilots it may run on, e.g. 'memory_mb >= 4000 and arch == \"x86_64\"'."
    ),
    click.option("--rank", metavar="EXPR", help="Which of them is best: the highest number, e.g. 'cpu_mhz'."),
    click.option("--deadline", metavar="TIME", help="When it should be done: 2h from now, or 2026-11-16T08:00."),
    click.option("--order", metavar="[-]NAME", help="Start the elements by this parameter; with -, the largest first."),
    click.option(
        "--setup", multiple=True, metavar="LINE", help="A line of shell before the command (repeat for more)."
    ),
    click.option("--container", metavar="IMAGE", help="Run it in this image, e.g. docker://python:3.12."),
    click.option(
        "--licence", "licences", multiple=True, metavar="NAME[=N]", help="A licence it holds (repeat for more)."
    ),
    click.option(
        "--checkpoint", multiple=True, metavar="FILE", help="A file by which it can go on later (repeat for more)."
    ),
    click.option("--checkpoint-every", metavar="TIME", help="How often they travel while it runs (default 60s)."),
    click.option("--shell", is_flag=True, help="Take the command as one text for the shell: 'sort a | uniq > b'."),
)
ARRAY_OPTION = click.option("--array", metavar="RANGE", help="Many elements, as in Slurm: 1-2000%50 (parameter {i}).")
QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="No progress; only the output and errors.")
