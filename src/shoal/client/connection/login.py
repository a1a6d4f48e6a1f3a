"""The login: config.toml with the server, and beside it the server's token (0600) and CA certificate.

Each file is written whole or not at all, config.toml last: the files that it names are always there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal.client.client import Client
from shoal.client.config import CONFIG, EMBEDDED, config_home, echo_path, read_config, write_private
from shoal.client.known_servers import forget_login, known_servers
from shoal.model.credentials import SUBMIT, kind_of
from shoal.model.errors import BadInput, Conflict, Refused, Unreachable
from shoal.wire.join import Join, parse_join

TOKEN, CA = "token", "ca.pem"
TRY_FOR = 10.0  # seconds for each address


def parse_login(text: str) -> Join:
    """Parse a login string: a join string with a person's token."""
    try:
        join = parse_join(text)
    except BadInput as error:
        message = error.message.replace("join string", "login string")
        raise BadInput(message, code=error.code, hint="copy the whole of what `shoal token new` printed") from None
    if kind_of(join.token) != SUBMIT:
        raise BadInput(
            "this string lets pilots in, not people", code="wrong_kind",
            hint="`shoal token new` makes a login string; what `shoal join` printed goes into a shell on the other host",
        )  # fmt: skip
    return join


def reach(join: Join) -> tuple[Client, dict[str, Any]]:
    """A client of the first address at which the right server answers, and its `whoami`."""
    lost: Unreachable | None = None
    for url in join.urls:
        client = Client(url, join.token, join.fingerprint, timeout=TRY_FOR)
        try:
            return client, client.whoami()
        except Unreachable as error:
            client.close()
            lost = error
        except BaseException:
            client.close()
            raise
    assert lost is not None  # a join string names at least one address
    if len(join.urls) == 1 or lost.code == "certificate_time":
        raise lost
    raise Unreachable(
        f"none of {', '.join(join.addresses)} answers; the last: {lost.message}",
        hint="can this machine reach them? a firewall or a VPN may be between",
    )


def check_free(join: Join, force: bool) -> None:
    """Refuse to overwrite the settings of another server."""
    if force:
        return
    file = config_home() / CONFIG
    there = read_config(file).get("server", "")
    is_name = there == EMBEDDED or there in known_servers()  # a choice of `shoal server use` can be made again
    if there and not is_name and there.rstrip("/") not in join.urls and not _same_ca(join.fingerprint):
        raise Conflict(
            f"{echo_path(file)} names another server: {there}", code="logged_in",
            hint="`shoal logout` first, or --force to replace it",
        )  # fmt: skip


def _same_ca(fingerprint: str) -> bool:
    """True if it is the server of the present login, at another address."""
    if not fingerprint:
        return False
    from shoal.client.connection.tls import fingerprint_of

    try:
        return fingerprint_of((config_home() / CA).read_text(encoding="ascii")) == fingerprint
    except (OSError, UnicodeDecodeError):
        return False


def write_login(url: str, token: str, ca: str) -> Path:
    """Write the files of a login; returns config.toml."""
    folder = config_home()
    config = folder / CONFIG
    lines = [f"server = {json.dumps(url)}", f'token_file = "{TOKEN}"']  # a JSON text is a TOML text
    lines += [f'ca = "{CA}"'] if ca else []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.unlink(missing_ok=True)  # until the end there is no login: a token is never sent to another server
        write_private(folder / TOKEN, f"{token}\n".encode())
        if ca:
            write_private(folder / CA, ca.encode())
        else:
            (folder / CA).unlink(missing_ok=True)
        write_private(config, "\n".join([*lines, ""]).encode())
    except OSError as error:
        raise Refused(
            f"cannot write to {echo_path(folder)}: {error.strerror}", code="unwritable",
            hint="set XDG_CONFIG_HOME to a directory you can write to",
        ) from None  # fmt: skip
    return config


def remove_login() -> str:
    """Remove the login; returns its server, empty if there was none."""
    folder = config_home()
    there = read_config(folder / CONFIG).get("server", "")
    try:
        for name in (CONFIG, TOKEN, CA):
            (folder / name).unlink(missing_ok=True)
        if there:
            forget_login(there)
    except OSError as error:
        raise Refused(
            f"cannot remove {echo_path(folder / CONFIG)}: {error.strerror}", code="unwritable", hint="remove it by hand"
        ) from None
    return there
