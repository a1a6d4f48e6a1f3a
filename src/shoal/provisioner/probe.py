"""A look at a site before it is used: can it be reached, what is there, and what is missing, each in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shoal.client.client import Client
from shoal.data.sources import parse_rule
from shoal.model.errors import BadInput
from shoal.model.quantities import parse_ports, show_duration
from shoal.provision import registry, site_url
from shoal.provision.backend import BackendError, Order, Shape
from shoal.provision.slurm import Limits, Slurm
from shoal.provisioner.reach import Reach
from shoal.provisioner.site import facts_of, open_shell, run_checked
from shoal.provisioner.site_file import SiteConfig, SiteFile

OLDEST = (3, 9)
# Lines of a name and a value. Only what every sh has.
_LOOK = """
echo "home $HOME"
echo "host $(uname -n)"
echo "cores $( (getconf _NPROCESSORS_ONLN || nproc) 2>/dev/null)"
echo "memory $(sed -n 's/^MemTotal: *\\([0-9]*\\) kB$/\\1/p' /proc/meminfo 2>/dev/null)"
echo "tool $(command -v "$2" 2>/dev/null)"
echo "python $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
"""
TOOLS = {
    "slurm": "sbatch", "sge": "qsub", "pbs": "qsub", "lsf": "bsub", "htcondor": "condor_submit", "kubernetes": "kubectl",
    "local": "sh", "command": "sh",
}  # fmt: skip


def check_config(config: SiteConfig) -> None:
    """Refuse a site whose settings contradict each other or its backend, before anything is asked of it."""
    name = site_url.parse(config.url).backend
    backend = registry.make(name, config.options)  # says what is wrong with them
    if config.mesh_port:
        parse_ports(config.mesh_port)
    for rule in config.storage:
        try:
            parse_rule(rule)
        except ValueError as error:
            hint = "name a directory that its hosts see, or a URL: data/=/lustre/phys/data/"
            raise BadInput(str(error), code="bad_storage", field="--storage", hint=hint) from None
    if config.hosts > config.max_pilots:
        raise BadInput(
            f"an allocation of {config.hosts} hosts brings as many pilots, and {config.max_pilots} may be there at most",
            code="range", field="--hosts", hint="raise --max-pilots, or take fewer hosts",
        )  # fmt: skip
    if config.min_pilots > config.max_pilots:
        raise BadInput(
            f"{config.min_pilots} pilots at least and {config.max_pilots} at most", code="range", field="--min-pilots",
            hint="raise --max-pilots",
        )  # fmt: skip
    shape = Shape(config.cores or 1, int(config.max_seconds), config.hosts, config.memory or 0)
    # With the name that its allocations will have: not every name of a site may stand in a script.
    backend.script(Order(f"shoal-check-{config.name}-1", shape, config.directory or "/", ("true",), config.options))


def probe(config: SiteConfig, file: SiteFile, client: Callable[[], Client], say: Callable[[str], None]) -> SiteConfig:
    """Look at a site and complete what was not given; raises with the first thing that is missing."""
    url = site_url.parse(config.url)
    shell = open_shell(config)
    reach = Reach(config, file.folder / "allocations", shell, client)
    try:
        tool = TOOLS.get(url.backend, "sh")
        text = run_checked(shell, ("sh", "-c", _LOOK, "sh", config.python, tool), "the site cannot be looked at")
        facts = facts_of(text)
        say(f"{url}: reached, host {facts.get('host', '?')}")
        if not facts.get("tool", "").strip():
            raise BackendError(
                f"there is no {tool} on {facts.get('host', 'that host')}", hint="is this the right host?"
            )
        _check_python(facts.get("python", "").strip(), config.python)
        say(f"python {facts['python'].strip()} ({config.python})")
        home = facts.get("home", "").strip()
        directory = config.directory or (f"{home}/.shoal/{file_word(file)}" if home.startswith("/") else "")
        if not directory.startswith("/"):
            raise BackendError("the account there has no home directory", hint="name one: --directory DIR")
        shell.make_directory(directory)
        space = run_checked(shell, ("df", "-Pk", directory), "its free space cannot be read").splitlines()[-1].split()
        say(
            f"files go to {directory} ({int(space[3]) // 1024:,} MiB free)"
            if space[3:4]
            else f"files go to {directory}"
        )
        backend = registry.make(url.backend, config.options)
        limits = backend.parse_limits(shell.run(backend.limits())) if isinstance(backend, Slurm) else Limits()
        cores, memory = limits.cores, limits.memory
        if url.backend == "local":  # pilots run on the very host that was looked at
            memory = _number(facts, "memory") * 1024
        found = replace(
            config, directory=directory, cores=config.cores or cores or _number(facts, "cores") or 1, host_memory=memory
        )
        longest = limits.seconds
        if longest is not None and longest < found.max_seconds:
            say(f"allocations may last {show_duration(longest)} there, so no more is asked for")
            found = replace(found, max_seconds=longest, min_seconds=min(found.min_seconds, longest))
        (file.folder / "allocations").mkdir(mode=0o700, parents=True, exist_ok=True)
        reach.open()
        say(f"its pilots reach the server {reach.describe()}")
        return found
    finally:
        reach.close()
        shell.close()


def _number(facts: Mapping[str, str], name: str) -> int:
    text = facts.get(name, "").strip()
    return int(text) if text.isdecimal() else 0


def file_word(file: SiteFile) -> str:
    """The random word of this person's sites; made if there is none yet."""
    with file.changing():
        pass
    return file.word


def _check_python(version: str, python: str) -> None:
    parts = version.split(".")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise BackendError(f"there is no {python} there", hint="name one: --python /path/to/python3")
    if (int(parts[0]), int(parts[1])) < OLDEST:
        raise BadInput(
            f"{python} there is {version}, and a pilot needs 3.9 or newer", code="old_python", field="--python",
            hint="name a newer one",
        )  # fmt: skip
