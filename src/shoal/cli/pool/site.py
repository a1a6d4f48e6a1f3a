"""`shoal site`: where Shoal gets machines for you, and whose the names of sites are."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from shoal.cli.output.describe import moment
from shoal.cli.output.json_documents import iso_document
from shoal.cli.output.tables import clean, print_answer, print_json, print_lines, print_table
from shoal.cli.output.tables import pairs as pairs_text
from shoal.cli.pool.site_state import CORE_HOUR, describe_site, hours, site_rows, waits_text
from shoal.cli.pool.site_weather import weather
from shoal.cli.session import Session, common_options, say
from shoal.client.client import Client
from shoal.client.connection import embedded_server
from shoal.client.connection.provisioner_process import folder_of
from shoal.model.errors import BadInput, Conflict, Refused, echo
from shoal.model.people import check_name
from shoal.model.quantities import many, parse_duration, parse_size, show_duration
from shoal.provision import site_url
from shoal.provisioner.ledger import Ledger
from shoal.provisioner.probe import check_config, probe
from shoal.provisioner.site_file import SiteConfig, SiteFile
from shoal.sched.demand import POLICIES, RULE_LIMITS, DemandRule
from shoal.wire.did_you_mean import did_you_mean

JOIN_WITHIN = 120.0  # seconds that `site add` waits for its test pilot
REMOVED_WITHIN = 60.0
FIXED = ("directory", "ssh_config", "tunnel", "no_test")  # options of `add` that cannot change later


@click.group()
def site() -> None:
    """Say where Shoal may get machines for you, and look at these places.

    A site is this machine, another one over ssh, or a batch system where you have an account. Shoal asks it for pilots when
    work waits, and gives them back when none does. Your keys stay on this machine.

    \b
    Examples:
      shoal site add box ssh://anna@box
      shoal site add hpc slurm+ssh://anna@login.hpc --account phys42 --max-pilots 20
      shoal site list
      shoal why hpc
    """


def _file(session: Session) -> SiteFile:
    return SiteFile(folder_of(session.target.url, embedded_server.state_dir()))


def _budget(text: str | None) -> float | None:
    """Core hours such as `500ch` in core seconds."""
    if text is None:
        return None
    number = text.removesuffix("ch")
    try:
        hours = float(number)
    except ValueError:
        hours = -1.0
    if not 0 < hours < 1e9:
        raise BadInput(f"{echo(text)!r} is no budget", code="range", field="--budget", hint="core hours, such as 500ch")
    return hours * CORE_HOUR


def _options(pairs: tuple[str, ...], **named: str | None) -> dict[str, str]:
    found = {name: value for name, value in named.items() if value is not None}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{echo(pair)!r} is no NAME=VALUE", code="range", field="-o", hint="such as -o qos=short")
        found[name] = value
    return found


@site.command("add")
@click.argument("name", metavar="NAME")
@click.argument("url", metavar="URL")
@click.option("--account", metavar="A", help="The account, or project, that the batch system books on.")
@click.option("--partition", metavar="P", help="The partition (Slurm).")
@click.option("--queue", metavar="Q", help="The queue (Grid Engine, PBS, LSF).")
@click.option("--qos", metavar="Q", help="The quality of service (Slurm).")
@click.option(
    "-o", "--option", "pairs", multiple=True, metavar="NAME=VALUE", help="Another option of the batch system."
)
@click.option("--cores", type=click.IntRange(1, 65536), metavar="N", help="Cores of one pilot [default: of that host].")
@click.option(
    "--hosts", type=click.IntRange(1, 10_000), default=1, metavar="N", help="Hosts of one allocation, a pilot on each."
)
@click.option(
    "--memory", metavar="SIZE", help="Memory of one pilot; 0: what the site gives [default: what its tasks take]."
)
@click.option(
    "--max-pilots", type=click.IntRange(1, 10_000), default=10, show_default=True, metavar="N", help="At most."
)
@click.option(
    "--min-pilots", type=click.IntRange(0, 10_000), default=0, metavar="N", help="Keep so many, with work or not."
)
@click.option("--max-queued", type=click.IntRange(1, 10_000), default=4, show_default=True, metavar="N",
              help="Allocations that wait there at one time, at most.")  # fmt: skip
@click.option(
    "--time", "wall", metavar="TIME", default="4h", show_default=True, help="The longest an allocation may last."
)
@click.option("--budget", metavar="HOURS", help="Core hours that may ever be used there, such as 500ch.")
@click.option("--python", default="python3", show_default=True, metavar="PATH", help="A Python 3.9 or newer there.")
@click.option(
    "--mesh", type=click.Choice(("on", "off")), default="on", show_default=True, help="Let its pilots share files."
)
@click.option("--mesh-port", metavar="A[-B]", help="The ports on which they are reached by each other [default: any].")
@click.option("--shared-dir", metavar="DIR",
              help="A directory that all hosts there see: reports are kept in it while the server is away, and its "
                   "address if it moves.")  # fmt: skip
@click.option("--storage", multiple=True, metavar="PREFIX=PLACE",
              help="Files whose names begin with PREFIX are at PLACE there, a directory or URL (repeat for more; with set: in "
                   "place of all before, - for none).")  # fmt: skip
@click.option("--directory", default="", metavar="DIR", help="For scripts and logs there [default: ~/.shoal].")
@click.option("--tunnel", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True,
              help="Let pilots reach the server through your ssh connection.")  # fmt: skip
@click.option("--ssh-config", default="", metavar="FILE", help="A configuration for ssh [default: your own].")
@click.option("--no-test", is_flag=True, help="Do not send a test pilot.")
@common_options
def add_site(
    name: str, url: str, account: str | None, partition: str | None, queue: str | None, qos: str | None,
    pairs: tuple[str, ...], directory: str, ssh_config: str, no_test: bool, as_json: bool, server: str | None,
    **limits: Any,
) -> None:  # fmt: skip
    """Add a site: look at it, send one test pilot, and use it from now on.

    URL is local:// (this machine), ssh://USER@HOST (another one), or a batch system, here or behind ssh: slurm://,
    slurm+ssh://USER@LOGIN, and likewise sge, pbs, lsf, htcondor, kubernetes and command (docs/reference/backends.md).
    If the test pilot fails, or you press Ctrl-C, the site is not kept and nothing of it is left.

    \b
    Examples:
      shoal site add box ssh://anna@box
      shoal site add hpc slurm+ssh://anna@login.hpc --account phys42 --partition short --time 2h
      shoal site add here slurm:// --budget 500ch
    """
    check_name(name, "NAME")
    parsed = site_url.parse(url)
    options = _options(pairs, account=account, partition=partition, queue=queue, qos=qos)
    config = SiteConfig(name, url, options, directory=directory, ssh_config=ssh_config, **_settings(limits))
    check_config(config)
    session = Session(server, changes=True)
    file = _file(session)
    known = file.read().get(name) if file.path.exists() else None
    if known is not None:
        if known.removed:
            raise Conflict(f"{name} is still being removed", code="site_exists", hint=f"see `shoal why site:{name}`")
        raise Conflict(
            f"you have a site {name} already: {known.url}", code="site_exists",
            hint=f"`shoal site set {name}` changes its limits, `shoal site remove {name}` forgets it",
        )  # fmt: skip
    with session.client() as client:
        config = probe(config, file, session.client, say if not as_json else lambda text: None)
        ledger = Ledger(file.ledger(name))
        ledger.looked = time.time()  # whatever is there was not asked for by this site
        ledger.save()
        with file.changing() as sites:
            sites[name] = config if no_test else replace(config, tested_until=time.time() + JOIN_WITHIN)
        found = None
        if not no_test:
            try:
                found = _await_pilot(client, session, name)
                _change(session, name, tested_until=0.0)
            except BaseException as error:
                _give_up(session, name)
                if isinstance(error, KeyboardInterrupt):
                    say(f"interrupted: site {name} was not kept, and nothing of it runs")
                raise
    if as_json:
        print_json(iso_document({"name": name, "url": str(parsed), "cores": config.cores, "pilot": found}))
        return
    say(f"site {name} is used from now on: up to {many(config.max_pilots, 'pilot')} of {many(config.cores, 'core')}")


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a site by the options of `add` and `set`; what was not given is left out."""
    found = {name: value for name, value in given.items() if value is not None and value != ()}
    if "storage" in found:
        found["storage"] = [rule for rule in found["storage"] if rule != "-"]
    if "wall" in found:
        seconds = parse_duration(found.pop("wall"), "--time")
        found |= {"max_seconds": seconds, "min_seconds": min(SiteConfig.min_seconds, seconds)}
    if "memory" in found:
        found["memory"] = 0 if found["memory"] == "0" else parse_size(found["memory"], "--memory")
    if "budget" in found:
        found["budget"] = _budget(found["budget"])
    return found


def _give_up(session: Session, name: str) -> None:
    """Cancel what was submitted for a site that is not kept, and forget it."""
    _change(session, name, removed=True)
    if not _await_removal(session, name):
        say(f"warning: allocations of {name} are still there; they are cancelled as soon as the site answers")


def _await_pilot(client: Client, session: Session, name: str) -> str | None:
    """Wait for the test pilot; says why it does not come."""
    until, told = time.monotonic() + JOIN_WITHIN, ""
    while time.monotonic() < until:
        session.wake_provisioner()
        found = client.demand()
        pilots = [one for one in found["pilots"] if one["site"] == name]
        if pilots:
            say(f"test pilot {pilots[0]['name']} runs there with {many(pilots[0]['cores'], 'core')}")
            return str(pilots[0]["name"])
        status = next((one for one in found["sites"] if one["site"] == name), None)
        wrong = (status["trouble"] or status["failure"]) if status is not None else ""
        if status is not None and wrong:
            raise Refused(
                f"no pilot comes from {name}: {clean(wrong)}", code="site_trouble",
                hint=f"{status['fix'] or 'mend it, and add the site again'}; it was not kept, and nothing of it runs",
            )  # fmt: skip
        text = waits_text(status) if status is not None else ""
        if text and text != told:
            told = text
            say(f"the test pilot waits: {text}")
        time.sleep(0.5)
    say(f"warning: no pilot came from {name} in {JOIN_WITHIN:.0f} s; `shoal why site:{name}` says how it stands")
    return None


@site.command("list")
@common_options
def list_sites(as_json: bool, server: str | None) -> None:
    """List your sites, and what they do; then the other names that you may use.

    \b
    Examples:
      shoal site list
    """
    session = Session(server)
    file = _file(session)
    sites = file.read() if file.path.exists() else {}
    rows = site_rows(session, file, list(sites.values()))
    named: dict[str, Any] = {"sites": []}
    if not session.is_embedded:
        with session.client() as client:
            named = client.sites()
    if as_json:
        print_json(iso_document({"own": rows, **named}))
        return
    table = [
        (r["name"], r["url"], r["pilots"], r["cores"], r["queued"], hours(r["used_core_hours"]), hours(r["left_core_hours"]),
         clean(r["state"]))
        for r in rows
    ]  # fmt: skip
    head = ("site", "url", "pilots", "cores", "queued", "core hours", "left", "state")
    print_table(head, table, "no sites: add one with `shoal site add NAME URL`")
    others = [row for row in named["sites"] if row["name"] not in sites]
    if others:
        shown = [(row["name"], " ".join(row["holders"]) or "-", moment(row["created"])) for row in others]
        print_table(("name", "for", "since"), shown, "")


@site.command("show")
@click.argument("name", metavar="NAME")
@common_options
def show_site(name: str, as_json: bool, server: str | None) -> None:
    """Everything about one of your sites.

    \b
    Examples:
      shoal site show hpc
    """
    session = Session(server)
    file = _file(session)
    row = site_rows(session, file, [file.get(name)])[0]
    if as_json:
        print_json(iso_document(row))
        return
    print_lines(pairs_text(describe_site(row)))


@site.command("policy")
@click.argument("chosen", metavar="[NAME|FILE]", required=False)
@common_options
def choose_policy(chosen: str | None, as_json: bool, server: str | None) -> None:
    """Show or choose how many pilots your sites are asked for, of which shape, and where.

    One policy plans all of your sites together. NAME is shoal (the default), or a paper's: pilotmonitor,
    pilotmonitor-repaired, simple, heuristic, hybrid, guided. FILE is TOML with a table [provision]: a policy and its
    numbers, as world files of `shoal simulate` have it (docs/howto/get-machines.md).

    \b
    Examples:
      shoal site policy
      shoal site policy guided
      shoal site policy careful.toml
    """
    session = Session(server, changes=chosen is not None)
    file = _file(session)
    if chosen is not None:
        file.set_rule(_policy(chosen))
    rule = file.rule()
    usual, found = asdict(DemandRule()), asdict(rule)
    changed = ", ".join(
        f"{name} = {value:g}" for name, value in found.items() if name in RULE_LIMITS and value != usual[name]
    )
    print_answer(
        found, as_json, f"your sites are asked for pilots by {rule.policy}" + (f" with {changed}" if changed else "")
    )


def _policy(chosen: str) -> DemandRule:
    """A policy by its name, or a file that describes one."""
    if chosen in POLICIES:
        return DemandRule(chosen)
    if not Path(chosen).exists():
        raise BadInput(
            f"{echo(chosen)!r} is neither a policy nor a file", code="range", field="NAME",
            hint=did_you_mean(chosen, list(POLICIES)),
        )  # fmt: skip
    from shoal.sim.planning.world_file import read_policy  # the simulator is not loaded for other commands

    return read_policy(chosen)


@site.command("ban")
@click.argument("name", metavar="NAME")
@click.option("--for", "duration", default="1h", show_default=True, metavar="TIME", help="How long.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for `shoal site list`.")
@common_options
def ban_site(name: str, duration: str, reason: str, as_json: bool, server: str | None) -> None:
    """Ask a site for nothing for a while; its pilots finish what they hold and end.

    \b
    Examples:
      shoal site ban hpc --for 6h --reason "maintenance"
    """
    session = Session(server, changes=True)
    until = time.time() + parse_duration(duration, "--for")
    _change(session, name, banned_until=until, ban_reason=reason)
    ended = 0
    client = session.running()
    if client is not None:
        with client:
            pilots = [one["name"] for one in client.demand()["pilots"] if one["site"] == name]
            ended = int(client.drain(pilots)["pilots"]) if pilots else 0
    text = f"{name} is asked for nothing for {show_duration(until - time.time())}; {many(ended, 'pilot')} there end"
    print_answer({"name": name, "until": until, "pilots": ended}, as_json, text)


@site.command("unban")
@click.argument("name", metavar="NAME")
@common_options
def unban_site(name: str, as_json: bool, server: str | None) -> None:
    """Use a site again.

    \b
    Examples:
      shoal site unban hpc
    """
    session = Session(server, changes=True)
    _change(session, name, banned_until=0.0, ban_reason="")
    print_answer({"name": name}, as_json, f"{name} is used again")


def _change(session: Session, name: str, **changes: Any) -> SiteConfig:
    """Change fields of a site; the provisioner reads them at its next step."""
    file = _file(session)
    file.get(name)
    with file.changing() as sites:
        sites[name] = replace(sites[name], **changes)
        check_config(sites[name])
    return sites[name]


@site.command("set")
@click.argument("name", metavar="NAME")
@common_options
def set_site(
    name: str, account: str | None, partition: str | None, queue: str | None, qos: str | None, pairs: tuple[str, ...],
    as_json: bool, server: str | None, **limits: Any,
) -> None:  # fmt: skip
    """Change the limits and options of a site, from the next allocation on. What is not named stays as it is.

    
    Examples:
      shoal site set hpc --max-pilots 30
      shoal site set hpc --budget 800ch --time 8h
      shoal site set hpc --partition long -o constraint=intel
    """
    session = Session(server, changes=True)
    options = _options(pairs, account=account, partition=partition, queue=queue, qos=qos)
    changes = _settings(limits)
    if not options and not changes:
        raise click.UsageError(f"say what to change, such as --max-pilots 30 (see `shoal site show {name}`)")
    if options:
        changes["options"] = {**_file(session).get(name).options, **options}
    _change(session, name, **changes)
    what = ", ".join(key.replace("_", " ") for key in changes)
    print_answer({"name": name, **changes}, as_json, f"{name} is changed: {what} (see `shoal site show {name}`)")


def _share_options() -> None:
    """`set` has the options of `add` that can change later; without defaults, since nothing is left to one."""
    for parameter in add_site.params:
        if isinstance(parameter, click.Option) and parameter.name not in (
            *FIXED,
            *{one.name for one in set_site.params},
        ):
            option = copy.copy(parameter)
            option.default, option.show_default = None, False
            set_site.params.append(option)


_share_options()


@site.command("remove")
@click.argument("name", metavar="NAME")
@common_options
def remove_site(name: str, as_json: bool, server: str | None) -> None:
    """Cancel all allocations of a site and forget it. Tasks that run there go on elsewhere.

    \b
    Examples:
      shoal site remove hpc
    """
    session = Session(server, changes=True)
    _change(session, name, removed=True)
    with session.client():
        is_gone = _await_removal(session, name)
    if not is_gone:
        raise Refused(
            f"allocations of {name} are still there; they are cancelled as soon as the site answers", code="site_busy",
            hint=f"see `shoal why site:{name}`",
        )  # fmt: skip
    print_answer({"name": name}, as_json, f"{name} is forgotten, and nothing of it runs")


def _await_removal(session: Session, name: str) -> bool:
    """Wait until a site that is marked as removed is forgotten; False if that takes too long."""
    file, until = _file(session), time.monotonic() + REMOVED_WITHIN
    while time.monotonic() < until:
        if name not in file.read():
            return True
        session.wake_provisioner()
        time.sleep(0.2)
    return False


site.add_command(weather)


@site.command("share")
@click.argument("name", metavar="NAME")
@click.argument("holders", metavar="HOLDER...", nargs=-1)
@click.option("--only", is_flag=True, help="Of these only; without any, whoever comes next gets the name.")
@common_options
def share_site(name: str, holders: tuple[str, ...], only: bool, as_json: bool, server: str | None) -> None:
    """Let others have pilots under a site's name (administrators): users, @GROUP, or * for everybody.

    The first enrolment token for a site makes its name the owner's or group's that the token is for. Others are refused
    with `site_taken`, until an administrator shares it.

    \b
    Examples:
      shoal site share cluster @phys anna
      shoal site share cluster @phys --only
    """
    if not holders and not only:
        raise click.UsageError("say with whom (anna, @phys, '*'), or --only to free the name")
    with Session(server, changes=True).shared_client() as client:
        answer = client.share_site(name, holders, only)
    print_answer(answer, as_json, f"site {name} is for: {' '.join(answer['holders']) or 'whoever comes next'}")
