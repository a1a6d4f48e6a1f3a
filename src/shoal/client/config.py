"""Configuration: the server, its token and how it is verified [protocol 1]. One rule for every command, client and
executor; the first that names a server counts:

`--server` > `$SHOAL_SERVER` > inside a task, its own server > `./shoal.toml` > `~/.config/shoal/config.toml` (`shoal server
use`) > inside a task, its own server elsewhere (only these files can have a token for it) > a running server of this
account > the embedded server.
A wrong configuration is refused with file, line and fix; it is never half-used [input E77].
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from shoal.client.connection.transport import check_url
from shoal.model.errors import BadInput, Refused, echo, printable
from shoal.model.file_names import SERVER_FILE
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_ECHO
from shoal.wire.did_you_mean import did_you_mean

# Key -> its description, which docs/reference prints.
KEYS: dict[str, str] = {
    "server": "the server: a name that `shoal server list` shows, or its address, e.g. https://box:8443 or "
    "unix:/path/to/socket; `embedded` for none",
    "token_file": "file with the token for that server, or its own server.json; mode 0600",
    "ca": "how an https server is known: a PEM file with its CA certificate, or sha256: and the certificate's "
    "fingerprint; without it, the system's certificates and the server's real name",
    "trust": "(only in your own config.toml) results of calls from pilots that are not your own: `own` loads plain data, "
    "numpy and pandas values only; "
    "`group` loads anything, so whoever may start pilots for your group can run code in your program; or the further "
    "classes that may be loaded, e.g. `mypackage.shapes:Circle, mypackage.shapes:Square`",
    "durability": "of the embedded server, at its next start: `full` (what is acknowledged survives a power cut) or `normal` "
    "(it survives any crash of programs, but a power cut may take the last moments)",
}
PERSONAL = ("trust",)  # never from the file of a directory, into which others may write: it lets code run
DURABILITIES = ("full", "normal")
LOCAL_FILE = "shoal.toml"
CONFIG = "config.toml"
OWN_FILE = "~/.config/shoal/config.toml"
EMBEDDED = "embedded"
TASK_SERVER = "SHOAL_TASK_SERVER"  # set by pilots: the server file or address of the server whose task we are in
PINNED = "sha256:"
MAX_CONFIG = 64 * 1024


Settings = list[tuple[Path, dict[str, str]]]


@dataclass(frozen=True)
class Target:
    """The server to use: `url` is None for the embedded one; `origin` is what chose it, `ca` how https is verified."""

    url: str | None = None
    token: str = ""
    origin: str = "default"
    ca: str = ""
    state: Path | None = None  # its state directory, if it is known to be a server of this account on this machine

    @property
    def is_remote(self) -> bool:
        """True if it is reached over the network, so that tasks run on hosts unlike this one."""
        return self.url is not None and self.url.startswith("https:")


@dataclass(frozen=True)
class ServerFile:
    """What a running server writes of itself into its state directory."""

    url: str
    token: str
    pid: int


def state_home(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_STATE_HOME/shoal`: the state directory of the embedded server."""
    return _xdg_home("XDG_STATE_HOME", ".local/state", env)


def own_state(env: Mapping[str, str] | None = None) -> Path:
    """The default state directory of `shoal server start`."""
    return state_home(env) / "server"


def config_home(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CONFIG_HOME/shoal`: the directory of a person's settings."""
    return _xdg_home("XDG_CONFIG_HOME", ".config", env)


def config_files(env: Mapping[str, str] | None = None) -> list[Path]:
    """The configuration files; the first with a setting counts."""
    return [Path(LOCAL_FILE), config_home(env) / CONFIG]


def _xdg_home(variable: str, default: str, env: Mapping[str, str] | None) -> Path:
    env = os.environ if env is None else env
    base = env.get(variable, "")
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    # The XDG rule: a relative path is invalid and ignored.
    return (Path(base) if base.startswith("/") else home / default) / "shoal"


def find_target(option: str | None = None, env: Mapping[str, str] | None = None) -> Target:
    """The server that the option, the environment or a file names; else a running one of this account, else the embedded
    one."""
    env = os.environ if env is None else env
    settings = [(file, read_config(file)) for file in config_files(env)]
    named = [("--server", option), ("$SHOAL_SERVER", env.get("SHOAL_SERVER"))]
    for origin, url in named:
        if url:
            return _target(url, origin, settings, env)
    server = env.get(TASK_SERVER, "")
    if server.startswith("/"):
        return _server_of_task(Path(server).parent, env)
    for file, found in settings:
        if found.get("server"):
            return _target(found["server"], str(file), settings, env)
    if server:
        return _far_server_of_task(server, settings, env)
    from shoal.client.known_servers import running_server  # it imports this module

    return running_server(env) or Target()


def _server_of_task(state: Path, env: Mapping[str, str]) -> Target:
    """The server whose pilot runs the task that we are in, by its state directory on this machine."""
    # Also of the embedded server: a task may not see its process, and must not start another one.
    server = read_server_file(state)
    if server is None:
        raise Refused(
            f"{env.get('SHOAL_TASK', 'the task')} runs here for a server whose {echo_path(state / SERVER_FILE)} cannot be read",
            code="no_server_file", hint="name a server with --server or $SHOAL_SERVER",
        )  # fmt: skip
    return Target(server.url, server.token, "the task")


def _far_server_of_task(url: str, settings: Settings, env: Mapping[str, str]) -> Target:
    """The same of a server elsewhere: its pilot's credentials are not for tasks."""
    found = _target(url, "the task", settings, env)
    if not found.token:
        raise Refused(
            f"{env.get('SHOAL_TASK', 'the task')} cannot submit to {echo(url)}: this host has no token for it",
            code="no_credentials", hint="log in there with `shoal login -`, or give the task SHOAL_TOKEN with --env",
        )  # fmt: skip
    return found


def submitting_task(url: str, env: Mapping[str, str] | None = None) -> str:
    """The task that we are in, if the server with this address runs it; else nothing."""
    env = os.environ if env is None else env
    server = env.get(TASK_SERVER, "")
    if server.startswith("/"):
        found = read_server_file(Path(server).parent)
        server = found.url if found is not None else ""
    return env.get("SHOAL_TASK", "") if server and server == url else ""


def _target(url: str, origin: str, settings: Settings, env: Mapping[str, str]) -> Target:
    if url == EMBEDDED:
        return Target(None, "", origin)
    from shoal.client.known_servers import is_name, target_of

    if is_name(url):
        return target_of(url, origin, env)
    url = check_url(url)
    return Target(url, _find_token(url, settings, env), origin, _find_ca(url, settings, env))


def _find_token(url: str, settings: Settings, env: Mapping[str, str]) -> str:
    if env.get("SHOAL_TOKEN"):
        return env["SHOAL_TOKEN"]
    found = _beside(url, "token_file", settings)
    if found is not None:
        return read_token(_named(found[1], found[0]))
    for state in (own_state(env), state_home(env)):
        # A server of our own on this machine: its token is in the same file as its address.
        server = read_server_file(state)
        if server is not None and server.url == url:
            return server.token
    return ""


def _find_ca(url: str, settings: Settings, env: Mapping[str, str]) -> str:
    if not url.startswith("https:"):
        return ""
    if env.get("SHOAL_CA"):
        return read_ca(env["SHOAL_CA"], Path())
    found = _beside(url, "ca", settings)
    return read_ca(found[1], found[0]) if found is not None else ""


def _beside(url: str, key: str, settings: Settings) -> tuple[Path, str] | None:
    """A setting for this server, and the directory of its file: of a file that names this server, or names none."""
    for file, found in settings:
        if found.get(key) and found.get("server", url).rstrip("/") == url:
            return file.parent, found[key]
    return None


def read_ca(value: str, base: Path) -> str:
    """The fingerprint or PEM text of a `ca` setting; a relative path begins at `base`."""
    if value.startswith(PINNED):
        digits = value.removeprefix(PINNED).replace(":", "").lower()
        if re.fullmatch("[0-9a-f]{64}", digits) is None:
            raise BadInput(
                f"{echo(value)!r} is not a fingerprint", code="bad_ca", field="ca",
                hint="sha256: and 64 hexadecimal digits; see `shoal server status` on the server",
            )  # fmt: skip
        return digits
    file = _named(value, base)
    try:
        with file.open(encoding="ascii") as opened:
            text = opened.read(MAX_CONFIG)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {echo_path(file)}: {_reason(error)}", code="bad_ca", field="ca",
            hint="name a PEM file, or write sha256: and its fingerprint",
        ) from None  # fmt: skip
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise BadInput(f"{echo_path(file)} holds no certificate", code="bad_ca", field="ca", hint="name a PEM file")
    return text


def read_server_file(state: Path) -> ServerFile | None:
    """The server file of a state directory; None if there is none that can be read."""
    try:
        found = json.loads((state / SERVER_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    if not (isinstance(found, dict) and isinstance(found.get("url"), str) and isinstance(found.get("pid"), int)):
        return None
    return ServerFile(found["url"], str(found.get("token", "")), found["pid"])


def write_private(file: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all: another process may read it at any moment."""
    part = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as opened:
            opened.write(data)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_token(file: Path) -> str:
    """The token in a file; refused if others can read it [security S12]."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"cannot read {echo_path(file)}: {_reason(error)}", code="bad_config", field="token_file",
            hint="name a file that holds the token",
        ) from None  # fmt: skip
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise Refused(
            f"{echo_path(file)} can be read by others", code="open_secret", field="token_file",
            hint=f"chmod 600 {echo_path(file)}",
        )  # fmt: skip
    if text.startswith("{"):
        try:
            text = str(json.loads(text)["token"])
        except (ValueError, KeyError, TypeError):
            text = ""
    if not text:
        raise BadInput(f"{echo_path(file)} holds no token", code="bad_config", field="token_file")
    return text


def read_config(file: Path) -> dict[str, str]:
    """The settings in a file; none if there is no such file."""
    try:
        data = file.read_bytes()[: MAX_CONFIG + 1]
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(file, 0, f"cannot be read: {_reason(error)}", "make it a readable UTF-8 text file") from None
    if len(data) > MAX_CONFIG:
        raise _wrong(file, 0, "is too large to be a configuration", f"at most {MAX_CONFIG} bytes")
    import tomllib  # most people have no such file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, reason = explain_toml(error, text)
        raise _wrong(file, line, f"is not TOML: {reason}", 'write key = "text"') from None
    except (RecursionError, ValueError):  # nested too deeply, or numbers with too many digits for the parser
        raise _wrong(file, 0, "is no configuration", 'write key = "text"') from None
    for key, value in found.items():
        line_number = line_of(text, key)
        if key not in KEYS:
            raise _wrong(file, line_number, f"unknown key {echo(key)!r}", did_you_mean(key, list(KEYS)))
        if not isinstance(value, str):
            raise _wrong(file, line_number, f"{key} must be a text", f'write {key} = "..."')
        if key in PERSONAL and file.name == LOCAL_FILE:
            raise _wrong(file, line_number, f"{key} is not taken from a directory's file", f"move it to {OWN_FILE}")
    return found


def find_trust(env: Mapping[str, str] | None = None) -> str | None:
    """The setting `trust` of a person's own file; None: not set. In `./shoal.toml`, which is read too, it is refused."""
    _, own = (read_config(file) for file in config_files(env))
    return own.get("trust") or None


def durability(env: Mapping[str, str] | None = None) -> str:
    """The setting `durability` for the embedded server; empty: the default."""
    for file in config_files(env):
        chosen = read_config(file).get("durability", "")
        if chosen and chosen not in DURABILITIES:
            line = line_of(file.read_text(encoding="utf-8", errors="replace"), "durability")
            raise _wrong(file, line, f"durability cannot be {echo(chosen)!r}", "full or normal")
        if chosen:
            return chosen
    return ""


def explain_toml(error: Exception, text: str) -> tuple[int, str]:
    """The line that is not TOML, and what is wrong with it."""
    found = re.search(r" \(at (?:line (\d+)|end of document)[^)]*\)$", str(error))
    if found is None:
        return 0, echo(str(error))
    return int(found[1] or len(text.splitlines())), echo(str(error)[: found.start()])


def line_of(text: str, key: str) -> int:
    """The number of the line with a top-level key or table; 0 if it is not found."""
    pattern = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 0)


def echo_path(path: str | Path) -> str:
    """Show a path in an error: short, control characters escaped; cut at its beginning, because its end says more."""
    text = printable(str(path))
    return text if len(text) <= MAX_ECHO else "…" + text[1 - MAX_ECHO :]


def _wrong(file: Path, line: int, what: str, fix: str) -> BadInput:
    where = f"{echo_path(file)}:{line}" if line else echo_path(file)
    return BadInput(f"{where}: {what}", code="bad_config", hint=fix)


def _named(text: str, base: Path) -> Path:
    """The file of a setting; a relative path begins at `base`."""
    try:
        return base / Path(text).expanduser()
    except RuntimeError:  # the home directory of an unknown user
        return base / text


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "?"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "no file can have that name"
