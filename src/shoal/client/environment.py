"""The submitter's environment: sent with a run, or kept in a file where it must not leave this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from shoal.client.config import echo_path, state_home, write_private
from shoal.model.errors import Refused
from shoal.model.file_names import ENVIRONMENTS
from shoal.model.limits import MAX_ENV_BYTES

KEPT = 30 * 86_400.0  # seconds after its last use
# Variables of a login or terminal, which say nothing about what a command computes.
_OF_SESSION = re.compile(
    r"_|SHLVL|PWD|OLDPWD|TERM.*|COLUMNS|LINES|COLORTERM|DISPLAY|WAYLAND_.*|WINDOWID|XAUTHORITY|XDG_SESSION_.*|XDG_VTNR|XDG_SEAT.*"
    r"|XDG_RUNTIME_DIR|XDG_ACTIVATION_TOKEN|DESKTOP_STARTUP_ID|KITTY_.*|ALACRITTY_.*|WEZTERM_.*|WT_.*|LC_TERMINAL.*|ZELLIJ.*|KRB5CCNAME"
    r"|SSH_.*|DBUS_.*|GPG_.*|TMUX.*|STY|WINDOW|VTE_.*|KONSOLE_.*|GNOME_.*|ITERM_.*|VSCODE_.*|LS_COLORS|PS[0-4]"
    r"|HIST.*|MAIL|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_.*|SUDO_.*"
)
_NAME = re.compile(r"[0-9a-f]{64}\.json(?:\.[0-9a-f]+)?")  # ours, whole or left half-written; not the server's r12.json


def environment() -> dict[str, str]:
    """The environment without Shoal's own variables, which may hold secrets, and without values that are not UTF-8."""
    found: dict[str, str] = {}
    size = 0
    for name, value in os.environ.items():
        if name.startswith("SHOAL_") or not name:
            continue
        try:
            size += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            continue
        if size > MAX_ENV_BYTES:
            raise Refused(
                "the environment is too large", code="env_too_large",
                hint=f"at most {MAX_ENV_BYTES} bytes: run it with `env -i` and --env",
            )  # fmt: skip
        found[name] = value
    return found


def environment_digest() -> str:
    """A digest of the environment without what differs from one terminal to the next: `--resume` compares it."""
    kept = {name: value for name, value in environment().items() if not _OF_SESSION.fullmatch(name)}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def environment_field(url: str) -> dict[str, object]:
    """The environment as a field of a submission: all of it to a server on this machine, else the name of its file."""
    if url.startswith("https:"):
        return {"environment_file": str(keep(environment()))}
    return {"environment": environment()}


def keep(variables: Mapping[str, str], now: float | None = None) -> Path:
    """Store an environment in a file that is named by the SHA-256 of its bytes, and that only this user reads."""
    now = time.time() if now is None else now
    data = json.dumps(variables, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
    folder = state_home() / ENVIRONMENTS
    file = folder / f"{hashlib.sha256(data).hexdigest()}.json"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _drop_old(folder, now - KEPT)
        if not _holds(file, data):
            write_private(file, data)
        os.utime(file, (now, now))  # used again: it is kept for another month
    except OSError as error:
        raise Refused(
            f"cannot keep the environment in {echo_path(folder)}: {error.strerror}", code="bad_state_dir",
            hint="set XDG_STATE_HOME to a directory of your own that you can write to",
        ) from None  # fmt: skip
    return file


def _holds(file: Path, data: bytes) -> bool:
    try:
        return file.read_bytes() == data and file.lstat().st_mode & 0o777 == 0o600
    except FileNotFoundError:
        return False


def _drop_old(folder: Path, before: float) -> None:
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another command may have deleted it
            if _NAME.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < before:
                os.unlink(entry.path)
