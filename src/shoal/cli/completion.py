"""`shoal completion`: the script by which a shell completes commands, options and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # every command about runs imports this module

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SHOAL_COMPLETE"  # by which the shell asks `shoal` for completions
MOST = 50  # runs that are offered


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
def completion(shell: str) -> None:
    """Print the script that completes commands, options and runs in your shell.

    \b
    Examples:
      eval "$(shoal completion bash)"              in ~/.bashrc
      eval "$(shoal completion zsh)"               in ~/.zshrc, behind compinit
      shoal completion fish > ~/.config/fish/completions/shoal.fish
    """
    from click.shell_completion import get_completion_class

    from shoal.cli.commands import cli

    found = get_completion_class(shell)
    assert found is not None  # click has these three
    click.echo(found(cli, {}, "shoal", VARIABLE).source())


def complete_runs(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and names of the newest runs; nothing where they cannot be read, since a shell waits for the answer."""
    from click.shell_completion import CompletionItem

    from shoal.cli.session import Session
    from shoal.model.errors import ShoalError

    try:
        with Session(context.params.get("server")).source() as source:
            rows = source.runs(limit=MOST)["runs"]
    except (ShoalError, OSError):
        return []
    words = {str(row["run"]): str(row["name"]) for row in rows}
    words |= {str(row["name"]): str(row["run"]) for row in reversed(rows) if row["name"]}
    return [CompletionItem(word, help=about) for word, about in words.items() if word.startswith(incomplete)]
