"""The servers that an account knows by name, which of them run on this machine, and which one was chosen.

`own` is the server of `shoal server start`, `embedded` the one that comes and goes by itself. What was started on another
state directory, logged in to, or written into config.toml is kept in servers.toml beside it, with the files of its token
and certificate, so that `shoal server use NAME` can go back to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from shoal.client.config import (
    CONFIG,
    EMBEDDED,
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
from shoal.wire.did_you_mean import did_you_mean

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
    found = {OWN: KnownServer(OWN, state=str(own_state(env)))}
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
            f"there is no server {echo(name)!r} ({origin})", code="unknown_server", field="server",
            hint=f"{hint}; `shoal server list` shows them, and an address begins with https:// or unix:/",
        )  # fmt: skip
    entry = known[name]
    if entry.state:
        server = read_server_file(Path(entry.state))
        if server is None or not is_running(server.pid):
            raise Unreachable(
                f"the server {name} ({origin}) is not running on {echo_path(entry.state)}", code="not_running",
                hint=f"`{start_line(entry)}`, or choose another: `shoal server use NAME`",
            )  # fmt: skip
        return Target(server.url, server.token, origin, state=Path(entry.state))
    home = config_home(env)
    token = read_token(home / entry.token_file) if entry.token_file else ""
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
    return server if server is not None and is_running(server.pid) and not server.url.startswith("http:") else None


def is_running(pid: int) -> bool:
    """True if this process is a server, and not another one that got the same id later."""
    with contextlib.suppress(OSError):
        return pid > 1 and b"shoal.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


# --- keeping them
def remember_started(state: Path) -> None:
    """Keep a server that was started on a state directory other than the usual one."""
    if state != own_state():
        entry = next((one for one in known_servers().values() if one.state == str(state)), None)
        if entry is None:
            _keep(KnownServer(_free_name(state.name or "server"), state=str(state)))


def remember_login(url: str, token: str, ca: str) -> str:
    """Keep a login under a name; returns the name."""
    entry = next((one for one in known_servers().values() if one.server == url), None)
    name = entry.name if entry is not None else _free_name(_host(url))
    folder = config_home() / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / f"{name}.token", f"{token}\n".encode())
    if ca:
        write_private(folder / f"{name}.pem", ca.encode())
    _keep(KnownServer(name, url, f"{FOLDER}/{name}.token", f"{FOLDER}/{name}.pem" if ca else ""))
    return name


def forget_login(server: str) -> None:
    """Forget a login by its name or address, with its token."""
    known = known_servers()
    for entry in [one for one in known.values() if server in (one.name, one.server) and not one.state]:
        for suffix in ("token", "pem"):
            (config_home() / FOLDER / f"{entry.name}.{suffix}").unlink(missing_ok=True)
        del known[entry.name]
    _write(known)


def chosen(env: Mapping[str, str] | None = None) -> str:
    """What a person's own config.toml names; empty if it names none."""
    return read_config(config_home(env) / CONFIG).get("server", "")


def choose(name: str) -> Path:
    """Write a choice into a person's own config.toml; an empty name takes it back. Other settings stay as they are."""
    if name and name != EMBEDDED and name not in known_servers():
        target_of(name, "shoal server use")  # refuses it with the names that there are
    home = config_home()
    file = home / CONFIG
    _keep_configured(file)
    lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    kept = [line for line in lines if not _CHOICE.match(line)]
    kept = [f"server = {json.dumps(name)}", *kept] if name else kept
    _write_private(file, "".join(f"{line}\n" for line in kept))
    return file


def _keep_configured(file: Path) -> None:
    """Give a name to the server that config.toml has the address of, so that it can be chosen again."""
    found = read_config(file)
    url = found.get("server", "")
    if not url or url == EMBEDDED or is_name(url) or any(one.server == url for one in known_servers().values()):
        return
    ca = found.get("ca", "")
    _keep(KnownServer(_free_name(_host(url)), url, found.get("token_file", ""), ca))


def _host(url: str) -> str:
    if url.startswith("unix:"):
        return Path(url.removeprefix("unix:")).parent.name or "server"
    host = urlsplit(url).hostname or "server"
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def _free_name(wanted: str) -> str:
    """A name that is not taken."""
    base = re.sub(r"[^A-Za-z0-9_.-]", "-", wanted).strip("-.")[:50] or "server"
    taken = {EMBEDDED, *known_servers()}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1_000))) if name not in taken)


def _keep(entry: KnownServer) -> None:
    known = known_servers()
    known[entry.name] = entry
    _write(known)


def _write(known: Mapping[str, KnownServer]) -> None:
    blocks = []
    for entry in known.values():
        if entry.name != OWN:
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
