"""Where a site is, as people write it: `slurm://`, `slurm+ssh://user@login:22`, `ssh://box`, `local://`."""

from __future__ import annotations

import re
from typing import NamedTuple

from shoal.model.errors import BadInput, echo

FORMS = "such as slurm://, slurm+ssh://user@login.example.org, ssh://box or local://"
URL = re.compile(r"([a-z][a-z0-9_-]*)(?:\+([a-z]+))?://(.*)", re.S)
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\\+-]{0,63}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
IPV6 = re.compile(r"[0-9a-fA-F:]{2,39}(?:%[A-Za-z0-9_.-]{1,32})?")


class SiteUrl(NamedTuple):
    """A backend, and the machine on which its commands run; no host: this one."""

    backend: str
    host: str = ""
    user: str = ""
    port: int = 0

    @property
    def is_remote(self) -> bool:
        """True if commands go over ssh."""
        return bool(self.host)

    @property
    def target(self) -> str:
        """What ssh is called with, the port apart."""
        return f"{self.user}@{self.host}" if self.user else self.host

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")
        if not self.host:
            return f"{self.backend}://"
        return f"ssh://{place}" if self.backend == "local" else f"{self.backend}+ssh://{place}"


def parse(url: str) -> SiteUrl:
    """Take a site's address apart; whether there is such a backend is for `registry` to say."""
    match = URL.fullmatch(url)
    if not match:
        raise _bad(f"{echo(url)} is not the address of a site", FORMS)
    backend, way, place = match.groups()
    if backend == "ssh" and way is None:
        backend, way = "local", "ssh"
    if way not in (None, "ssh"):
        raise _bad(f"{echo(url)}: {way} is no way to a site", f"the only one is ssh: {backend}+ssh://")
    place = place.removesuffix("/")
    if way is None:
        if place:
            hint = f"for {backend} on another machine: {backend}+ssh://{echo(place)}"
            raise _bad(f"{echo(url)}: {backend}:// is on this machine and takes no host", hint)
        return SiteUrl(backend)
    return _parse_place(url, backend, place)


def _parse_place(url: str, backend: str, place: str) -> SiteUrl:
    if not place:
        raise _bad(f"{echo(url)} names no host", f"{backend}+ssh://user@login.example.org")
    if re.search(r"[/?#]", place):
        raise _bad(f"{echo(url)}: nothing may follow the host", "options of a site are given apart")
    user, at, rest = place.rpartition("@")
    if at and not USER.fullmatch(user):
        hint = "passwords have no place here: ssh uses keys" if ":" in user else "letters, digits and _.-"
        raise _bad(f"{echo(url) if ':' not in user else 'the address'}: not the name of an account", hint)
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", rest, re.S)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
        is_good = bool(IPV6.fullmatch(host))
    else:
        host, colon, number = rest.partition(":")
        port = number if colon else None
        is_good = bool(HOST.fullmatch(host))
    if not is_good:
        raise _bad(f"{echo(url)}: {echo(host)} is not the name of a host", "letters, digits and _.-")
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
        raise _bad(f"{echo(url)}: {echo(port)} is not a port", "a number from 1 to 65535")
    return SiteUrl(backend, host, user, int(port or 0))


def _bad(what: str, hint: str) -> BadInput:
    return BadInput(what, code="bad_site_url", field="url", hint=hint)
