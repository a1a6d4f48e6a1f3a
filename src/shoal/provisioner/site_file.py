"""The sites of a person for one server: a private file that `shoal site` writes and the provisioner reads."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from shoal.client.config import echo_path, write_private
from shoal.client.connection.provisioner_process import SITES
from shoal.model.errors import BadInput, NotFound, Refused, echo
from shoal.model.lazy_dataclass import dataclass
from shoal.sched.demand import DemandRule
from shoal.wire.did_you_mean import did_you_mean


@dataclass(frozen=True)
class SiteConfig:
    """One site as a person described it."""

    name: str
    url: str
    options: dict[str, str] = field(default_factory=dict)  # of the batch system: account, partition, ...
    cores: int = 0  # of one pilot; 0: what the probe found
    max_pilots: int = 10
    min_pilots: int = 0
    min_idle: int = 0
    max_queued: int = 4
    max_seconds: float = 14_400.0  # of wall time
    min_seconds: float = 600.0
    hosts: int = 1  # of one allocation, with a pilot on each
    memory: int | None = None  # bytes of one pilot; 0: what the site gives; None: by what tasks take
    host_memory: int = 0  # bytes that a host there has for a pilot of `cores`; 0: not known
    budget: float | None = None  # core seconds
    python: str = "python3"
    directory: str = ""  # absolute, on the site; found by the probe
    ssh_config: str = ""
    tunnel: str = "auto"  # always, never
    mesh: str = "on"  # off: its pilots share no files with each other
    mesh_port: str = ""  # the port, or the range of ports, on which they are reached by each other; empty: any
    shared_dir: str = ""  # a directory that all hosts there see: reports are kept in it while the server is away
    storage: list[str] = field(default_factory=list)  # PREFIX=PLACE: where the site has files, by their names
    idle_end: float = 60.0  # seconds without a task after which a pilot ends
    banned_until: float = 0.0
    ban_reason: str = ""
    tested_until: float = 0.0  # it was just added: one pilot is asked for, whatever waits
    removed: bool = False  # its allocations are being cancelled


class SiteFile:
    """All sites of a person for one server, and the random word by which their allocations are recognised."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / SITES

    def ledger(self, name: str) -> Path:
        """The file of a site's allocations."""
        return self.folder / "allocations" / f"{name}.json"

    def exists(self) -> bool:
        """True if there is at least one site."""
        return self.path.exists() and bool(self.read())

    def stamp(self) -> tuple[int, int]:
        """Changes whenever the file does."""
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def read(self) -> dict[str, SiteConfig]:
        """The sites by name; removed ones too, while they have allocations."""
        return {row["name"]: _site(row) for row in self._document().get("sites", ())}

    @property
    def word(self) -> str:
        """The random part of this person's names of allocations."""
        return str(self._document()["word"])

    def get(self, name: str) -> SiteConfig:
        """One site; NotFound if there is none."""
        sites = {site.name: site for site in self.read().values() if not site.removed}
        if name not in sites:
            hint = did_you_mean(name, list(sites)) if sites else "add one with `shoal site add NAME URL`"
            raise NotFound(f"you have no site {echo(name)!r}", code="unknown_site", hint=hint)
        return sites[name]

    def rule(self) -> DemandRule:
        """The policy by which all sites together are asked for pilots."""
        try:
            return DemandRule(**self._document().get("provision", {}))
        except (TypeError, ValueError) as error:
            raise Refused(
                f"{echo_path(self.path)} has no valid policy: {error}", code="bad_sites",
                hint="choose one with `shoal site policy`",
            ) from None  # fmt: skip

    def set_rule(self, rule: DemandRule) -> None:
        """Choose another policy; the provisioner takes it up at its next look."""
        with self._locked():
            usual = asdict(DemandRule())
            chosen = {name: value for name, value in asdict(rule).items() if name == "policy" or value != usual[name]}
            self._write({**self._document(), "provision": chosen})

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, SiteConfig]]:
        """Change the sites: what is in the mapping at the end is written. One process at a time."""
        with self._locked():
            document = self._document()
            sites = {row["name"]: _site(row) for row in document.get("sites", ())}
            yield sites
            self._write({**document, "sites": [asdict(site) for site in sites.values()]})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(self.folder / f"{SITES}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, document: Mapping[str, Any]) -> None:
        whole = {"word": secrets.token_hex(4), "sites": [], **document}
        write_private(self.path, json.dumps(whole, indent=1).encode())

    def _document(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Refused(
                f"{echo_path(self.path)} cannot be read: {error}", code="bad_sites",
                hint="repair it, or remove it and add your sites again",
            ) from None  # fmt: skip
        if not isinstance(found, dict) or not isinstance(found.get("sites"), list):
            raise Refused(f"{echo_path(self.path)} is no list of sites", code="bad_sites", hint="remove it")
        return found


def _site(row: Mapping[str, Any]) -> SiteConfig:
    known = {field.name for field in fields(SiteConfig)}
    try:
        return SiteConfig(**{name: value for name, value in row.items() if name in known})
    except TypeError as error:
        raise BadInput(f"a site is not whole: {error}", code="bad_sites", hint="add it again") from None
