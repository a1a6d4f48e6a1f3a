"""The servers that an account knows by name, which of them run on this machine, and which one was chosen.

`own` is the server of `shoal server start`, `embedded` the one that comes and goes by itself. What was
started on another state directory, and a login or address in config.toml that another choice replaces, is kept in
servers.toml beside it, with its token and certificate, so that `shoal server use NAME` can go back to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from shoal.client.config import (
    CONFIG,
    EMBEDDED,
    PINNED,
    ServerFile,
    Target,
    config_home,
    echo_path,
    explain_toml,
    own_state,
    read_ca,
    read_config,
    read_server_file,
    read_token,
    write_private,
)
from shoal.model.errors import BadInput, Refused, Unreachable, echo
from shoal.model.file_names import SERVER_FILE
from shoal.model.lazy_dataclass import dataclass
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.http import unix_socket

SERVERS = "servers.toml"
FOLDER = "servers"  # of the files of their tokens and certificates
OWN = "own"
RUNNING = "a running server of yours"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEYS = ("server", "token_file", "ca", "state")
_CHOICE = re.compile(r"""\s*["']?(?:server|token_file|ca)["']?\s*=""")


@dataclass(frozen=True)
class KnownServer:
    """One server with a name; `state` is its state directory, if it is one of this account on this machine."""

    name: str
    server: str = ""  # its address; that of a server here is in its state directory
    token_file: str = ""
    ca: str = ""
    state: str = ""


def known_servers(env: Mapping[str, str] | None = None) -> dict[str, KnownServer]:
    """All servers with a name but the embedded one; one's own first."""
    found = {OWN: KnownServer(OWN, state=str(own_state(env))), **_kept(env)}
    here = read_config(config_home(env) / CONFIG)
    url = here.get("server", "")
    if ":" in url and not any(one.server == url for one in found.values()):
        name = _free_name(_host(url), found)
        found[name] = KnownServer(name, url, here.get("token_file", ""), here.get("ca", ""))
    return found


def _kept(env: Mapping[str, str] | None) -> dict[str, KnownServer]:
    """What servers.toml has."""
    found: dict[str, KnownServer] = {}
    file = config_home(env) / SERVERS
    text = ""
    try:
        text = file.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError:
        return found
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {echo_path(file)}: {error}", code="bad_config", hint="remove it") from None
    except tomllib.TOMLDecodeError as error:
        line, reason = explain_toml(error, text)
        where = f"{echo_path(file)}:{line}: is not TOML: {reason}"
        raise BadInput(where, code="bad_config", hint="Shoal writes this file: remove it, and log in again") from None
    for name, table in tables.items():
        if NAME.fullmatch(name) and isinstance(table, dict):
            found[name] = KnownServer(name, **{key: str(table[key]) for key in _KEYS if key in table})
    return found


def is_name(text: str) -> bool:
    """True for what names a server, and is no address."""
    return NAME.fullmatch(text) is not None


def target_of(name: str, origin: str, env: Mapping[str, str] | None = None) -> Target:
    """The server with this name."""
    known = known_servers(env)
    if name not in known:
        hint = did_you_mean(name, [EMBEDDED, *known])
        raise BadInput(
            f"there is no server {echo(name)!r}", code="unknown_server", field=origin,
            hint=f"{hint}; see `shoal server list`; an address begins with https:// or unix:/",
        )  # fmt: skip
    entry = known[name]
    if entry.state:
        server = read_server_file(Path(entry.state))
        if server is None or not is_running(server):
            raise Unreachable(
                f"the server {name} ({origin}) is not running on {echo_path(entry.state)}", code="not_running",
                hint=f"`{start_line(entry)}`, or choose another: `shoal server use NAME`",
            )  # fmt: skip
        return Target(server.url, server.token, origin, state=Path(entry.state))
    home = config_home(env)
    given = (os.environ if env is None else env).get("SHOAL_TOKEN", "")
    token = given or (read_token(home / Path(entry.token_file).expanduser()) if entry.token_file else "")
    return Target(entry.server, token, origin, read_ca(entry.ca, home) if entry.ca else "")


def start_line(entry: KnownServer) -> str:
    """The command that starts a server of this account."""
    return "shoal server start" if entry.name == OWN else f"shoal server start --state {entry.state}"


def running_server(env: Mapping[str, str] | None = None) -> Target | None:
    """The running server of this account on this machine: that of `shoal server start`, else the newest of the others."""
    entries = [entry for entry in known_servers(env).values() if entry.state]
    running = [(entry, server) for entry in entries if (server := _running(entry)) is not None]
    if not running:
        return None
    entry, server = next((one for one in running if one[0].name == OWN), max(running, key=_started))
    return Target(server.url, server.token, RUNNING, state=Path(entry.state))


def _started(one: tuple[KnownServer, ServerFile]) -> float:
    try:
        return (Path(one[0].state) / SERVER_FILE).stat().st_mtime
    except OSError:
        return 0.0


def _running(entry: KnownServer) -> ServerFile | None:
    server = read_server_file(Path(entry.state))
    # Over plain http only a server of an older Shoal is reached, which `shoal server start` refuses with the way out.
    return server if server is not None and is_running(server) and not server.url.startswith("http:") else None


def is_running(server: ServerFile) -> bool:
    """True if the process of a server file is that server, and not another one that got the same id later."""
    try:
        if server.pid > 1 and b"shoal.server" in Path(f"/proc/{server.pid}/cmdline").read_bytes():
            return True
    except OSError:
        return False
    path = server.url.removeprefix(unix_socket.SCHEME)
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as tried:
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            tried.connect(unix_socket.direct_path(path, folder))
            return path != server.url
        finally:
            os.close(folder)
    return False


# --- keeping them
def remember_started(state: Path) -> None:
    """Keep a server that was started on a state directory other than the usual one."""
    if state != own_state():
        entry = next((one for one in known_servers().values() if one.state == str(state)), None)
        if entry is None:
            _keep(KnownServer(_free_name(state.name or "server", known_servers()), state=str(state)))


def forget_login(server: str) -> bool:
    """Forget a login that is kept, by its name or address, with its token; False if there is none."""
    known = _kept(None)
    gone = [one for one in known.values() if server in (one.name, one.server) and not one.state]
    for entry in gone:
        for suffix in ("token", "pem"):
            (config_home() / FOLDER / f"{entry.name}.{suffix}").unlink(missing_ok=True)
        del known[entry.name]
    if gone:
        _write(known)
    return bool(gone)


def chosen(env: Mapping[str, str] | None = None) -> str:
    """What a person's own config.toml names; empty if it names none."""
    return read_config(config_home(env) / CONFIG).get("server", "")


def choose(name: str) -> Path:
    """Write a choice into a person's own config.toml; an empty name takes it back. Other settings stay as they are."""
    if name and not is_name(name):
        hint = "`shoal login -` makes another's server known by a name; see `shoal server list`"
        raise BadInput(f"{echo(name)!r} is not the name of a server", code="unknown_server", hint=hint)
    if name and name != EMBEDDED and name not in known_servers():
        target_of(name, "use")  # refuses it with the names that there are
    home = config_home()
    file = home / CONFIG
    _keep_configured(file)
    lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    kept = [line for line in lines if not _CHOICE.match(line)]
    kept = [f"server = {json.dumps(name)}", *kept] if name else kept
    _write_private(file, "".join(f"{line}\n" for line in kept))
    return file


def _keep_configured(file: Path) -> None:
    """Keep the server that config.toml has the address of, with its token and certificate, so that it can be chosen again:
    the next login writes over the files of this one."""
    url = read_config(file).get("server", "")
    entry = next((one for one in known_servers().values() if ":" in url and one.server == url), None)
    if entry is None or entry.name in _kept(None):
        return
    kept = KnownServer(entry.name, url)
    if entry.token_file:
        kept = replace(kept, token_file=f"{FOLDER}/{entry.name}.token")
        token = read_token(config_home() / Path(entry.token_file).expanduser())
        _write_private(config_home() / kept.token_file, f"{token}\n")
    if entry.ca:
        ca = read_ca(entry.ca, config_home())
        kept = replace(kept, ca=entry.ca if entry.ca.startswith(PINNED) else f"{FOLDER}/{entry.name}.pem")
        if kept.ca != entry.ca:
            _write_private(config_home() / kept.ca, ca)
    _keep(kept)


def _host(url: str) -> str:
    if url.startswith("unix:"):
        return Path(url.removeprefix("unix:")).parent.name or "server"
    host = urlsplit(url).hostname or "server"
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def _free_name(wanted: str, known: Mapping[str, object]) -> str:
    """A name that is not taken."""
    base = re.sub(r"[^A-Za-z0-9_.-]", "-", wanted).strip("-.")[:50] or "server"
    taken = {EMBEDDED, *known}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1_000))) if name not in taken)


def _keep(entry: KnownServer) -> None:
    _write({**_kept(None), entry.name: entry})


def _write(known: Mapping[str, KnownServer]) -> None:
    blocks = []
    for entry in known.values():
        pairs = [(key, getattr(entry, key)) for key in _KEYS]
        lines = [f"{key} = {json.dumps(value)}" for key, value in pairs if value]  # a JSON text is a TOML text
        blocks.append("\n".join([f'["{entry.name}"]', *lines, ""]))
    _write_private(config_home() / SERVERS, "\n".join(blocks))


def _write_private(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, text.encode())
    except OSError as error:
        raise Refused(
            f"cannot write to {echo_path(os.path.dirname(file))}: {error.strerror}", code="unwritable",
            hint="set XDG_CONFIG_HOME to a directory you can write to",
        ) from None  # fmt: skip
