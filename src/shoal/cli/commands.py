"""The table of commands, and the click group that finds and imports them."""

from __future__ import annotations

import importlib
import re

import click

from shoal.wire.did_you_mean import did_you_mean

# Command -> its module and its line in the list. Modules are imported when used, so that a command starts fast.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("tasks.run", "Run a command or a task file, and wait for it."),
    "sweep": ("tasks.run", "Run a command for all combinations of parameters, and wait."),
    "dag": ("workflows.dag", "Run a workflow of DAGMan or WfFormat, and wait for it."),
    "submit": ("tasks.run", "Like run and sweep, but return at once with the run's id."),
    "ps": ("tasks.ps", "List runs, or the tasks of a run."),
    "show": ("tasks.show", "Everything about a run, a task or a pilot."),
    "why": ("tasks.why", "Why something waits, failed or is where it is."),
    "logs": ("tasks.logs", "What a task printed, or prints now."),
    "export": ("manage.export", "Write a run as a workflow in WfFormat, with what was measured."),
    "results": ("tasks.results", "One row per task: parameters, state, last line."),
    "partial": ("manage.partial", "What tasks emitted so far, merged into one answer."),
    "report": ("tasks.report", "The history of a run, its phases, and where slot time was lost."),
    "wait": ("tasks.wait", "Wait for runs, with progress."),
    "accept": ("manage.accept", "Accept what was predicted of a run, so that it starts."),
    "grow": ("manage.grow", "Tell a run with rules of new files, or that no more will come."),
    "cancel": ("tasks.cancel", "Cancel runs or tasks."),
    "retry": ("tasks.retry", "Run failed, cancelled and lost tasks again."),
    "signal": ("tasks.signal", "Send a signal to running tasks."),
    "set": ("manage.set", "Change priority, limits or needs of what is queued."),
    "copy": ("manage.copy", "Submit the same work once more, with changes."),
    "rm": ("manage.rm", "Remove finished runs and their logs."),
    "get": ("manage.get", "Fetch the outputs of tasks that ran where your files are not seen."),
    "files": ("manage.peek", "List the files of a running task, wherever it runs."),
    "peek": ("manage.peek", "Print a file of a running task, or its end."),
    "events": ("tasks.events", "What happened, one line per event."),
    "prune": ("admin.prune", "Delete old events and logs."),
    "join": ("pool.join", "Print one line that makes another host work for you."),
    "bridge": ("pool.bridge", "Have another organisation's server run tasks of this one."),
    "pilots": ("pool.pilots", "List the pilots."),
    "hosts": ("pool.hosts", "What each host did, over all its pilots."),
    "cache": ("pool.cache", "The files that this host keeps for its pilots' tasks; clean them."),
    "pilot": ("pool.pilot", "Start, drain, stop or build a pilot."),
    "server": ("pool.server", "Start, stop, look at or back up a server."),
    "login": ("pool.login", "Work with somebody's server from now on."),
    "logout": ("pool.login", "Forget that server."),
    "whoami": ("pool.login", "Who you are to the server."),
    "user": ("admin.user", "Add people to the server, or list them."),
    "group": ("admin.group", "Add groups who share pilots, or list them."),
    "site": ("pool.site", "Add sites where Shoal gets pilots; list, ban and remove them."),
    "share": ("admin.share", "What is due to people and groups; change it."),
    "quota": ("admin.quota", "Limits on cores, hours, tasks and bytes, and what of them is used."),
    "policy": ("admin.policy", "Show the whole policy, or apply one from a file."),
    "token": ("admin.token", "Make, list and revoke tokens."),
    "acct": ("admin.acct", "Where the core hours went, by owner, site, host, pilot, run or day."),
    "audit": ("admin.audit", "Who did what with which token."),
    "simulate": ("planning.simulate", "How long a workload would take in a described world."),
    "replay": ("planning.replay", "How long a past run would have taken with other pilots."),
    "reproduce": ("planning.reproduce", "The papers' experiments: what they print, and what comes out here."),
    "completion": ("completion", "Print the script that completes commands in your shell."),
}
# The list of commands, in groups.
GROUPS: dict[str, tuple[str, ...]] = {
    "Work": (
        "run",
        "sweep",
        "submit",
        "dag",
        "wait",
        "accept",
        "grow",
        "cancel",
        "retry",
        "set",
        "copy",
        "signal",
        "rm",
    ),
    "Look": (
        "ps",
        "show",
        "why",
        "logs",
        "peek",
        "files",
        "get",
        "results",
        "partial",
        "report",
        "export",
        "events",
        "acct",
    ),
    "Pool": ("join", "pilots", "hosts", "pilot", "cache", "site", "bridge"),
    "People": ("login", "logout", "whoami", "user", "group", "share", "quota", "policy", "token", "audit"),
    "Plan": ("simulate", "replay", "reproduce"),
    "Server": ("server", "prune", "completion"),
}
# Commands of others, and ours that do the same.
HABITS: dict[str, str] = {
    **dict.fromkeys(
        ("queue", "squeue", "qstat", "bjobs", "condor_q", "status", "list", "ls", "jobs", "job", "stat"), "ps"
    ),
    **dict.fromkeys(("sbatch", "qsub", "bsub", "condor_submit", "sub", "enqueue"), "submit"),
    **dict.fromkeys(("condor_submit_dag", "dagman", "workflow", "pegasus-run"), "dag"),
    **dict.fromkeys(("srun", "exec", "start", "parallel"), "run"),
    **dict.fromkeys(("kill", "scancel", "qdel", "bkill", "condor_rm", "delete", "del", "abort", "stop"), "cancel"),
    **dict.fromkeys(("top", "htop", "watch", "attach"), "wait"),
    **dict.fromkeys(("log", "cat", "output", "tail", "stdout"), "logs"),
    **dict.fromkeys(("sacct", "qacct", "sreport", "usage"), "acct"),
    **dict.fromkeys(("sinfo", "nodes", "workers", "worker", "sites", "pbsnodes", "condor_status"), "pilots"),
    **dict.fromkeys(("scontrol", "describe", "inspect", "info"), "show"),
    **dict.fromkeys(("array", "map", "batch"), "sweep"),
    **dict.fromkeys(("rerun", "requeue", "resubmit", "restart"), "retry"),
    **dict.fromkeys(("fairshare", "sshare", "sprio"), "share"),
    **dict.fromkeys(("sacctmgr", "users"), "user"),
}
# Examples of arguments, by how their names begin.
EXAMPLES = {"RUN": "r12", "TASK": "r12.7", "SIGNAL": "USR1 r12.7", "NAME": "anna", "NUMBER": "anna 2"}
WELCOME = """Shoal runs your commands on every machine you can reach. Three commands to begin with:

  shoal run -- echo hello                     run one command
  shoal sweep 'x=1..10' -- ./sim --x {x}      run it for many parameters
  shoal results r2                            one row per task: parameters, state, last line

`shoal --help` lists all commands, `shoal COMMAND --help` explains one."""


# How click tells of words that a command does not take.
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")


class CommandGroup(click.Group):
    """The group of all commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"shoal.cli.{COMMANDS[name][0]}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ours = HABITS.get(args[0])
            hint = f"here it is: shoal {ours}" if ours is not None else did_you_mean(args[0], list(COMMANDS))
            raise click.UsageError(f"there is no command {args[0]!r} ({hint})")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table: importing every module for one line is slow.
        widest = max(map(len, COMMANDS))
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), COMMANDS[name][1]) for name in names if name in COMMANDS])


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, help="Print the version.")
@click.pass_context
def cli(context: click.Context, version: bool) -> None:
    """Shoal: pilots that pull tasks, over any batch system, with one small server.

    \b
    Examples:
      shoal run -- echo hello
      shoal sweep 'x=1..10' 'mode=a,b' -- ./sim --x {x} --mode {mode}
      shoal run tasks.toml
      shoal results r2 --csv > results.csv

    Exit status: 0 all succeeded, 1 a task did not, 2 wrong use, 3 refused, 4 no answer from the server.
    """
    if version:
        from shoal import __version__

        click.echo(f"shoal {__version__}")
    elif context.invoked_subcommand is None:
        click.echo(WELCOME)


def line_of(error: click.ClickException) -> str:
    """The line for a wrong command line, with how to correct it."""
    context = getattr(error, "ctx", None)
    command, path = (context.command, context.command_path) if context is not None else (None, "shoal")
    if isinstance(error, click.NoSuchOption):
        close = [name for name in error.possibilities or () if name]
        fix = f"did you mean {close[0]}" if close else f"see `{path} --help`"
        if isinstance(command, CommandGroup):
            fix = f"options go behind the command: shoal COMMAND {error.option_name}"
        return f"there is no option {error.option_name} ({fix})"
    if isinstance(command, click.Group) and isinstance(error, click.exceptions.NoArgsIsHelpError):
        return f"{path} needs a command (one of: {', '.join(command.commands)})"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        wanted = (error.param.metavar or error.param.human_readable_name).strip("[].")
        example = next((text for start, text in EXAMPLES.items() if wanted.startswith(start)), wanted)
        return f"{path} needs {wanted} (e.g. {path} {example})"
    message = " ".join(error.format_message().split())
    extra = _EXTRA.fullmatch(message)
    if extra is not None:
        return f"{path} takes no {extra[1]} here (see `{path} --help`)"
    if isinstance(error, click.UsageError) and "(" not in message:
        message = f"{message.rstrip('.')} (see `{path} --help`)"
    return message
