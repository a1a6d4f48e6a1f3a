"""Members of a mesh that left at their site where they are reached, for pilots that start while the server is away."""

from __future__ import annotations

import hashlib
import re

from shoal.dht.key import parse_key
from shoal.dht.routing_table import Contact
from shoal.model.limits import MAX_PEER_ADDRESS
from shoal.pilot.uplink import left_files

KEPT = 16  # members, the newest first; a line each: id and address
_LINE = re.compile(rf"([0-9a-f]{{64}}) (\S{{1,{MAX_PEER_ADDRESS}}})")


class LeftMembers:
    """The file of one mesh."""

    def __init__(self, fingerprint: str, folder: str, shared: str) -> None:
        """`folder`: of a provisioner; `shared`: all hosts of the site see it. Members write to the latter, if there is one."""
        self._fingerprint = fingerprint
        self._folders = [one for one in (left_files.folder_in(shared) if shared else "", folder) if one]

    def leave(self, mesh: str, own: Contact) -> None:
        """We are reached there."""
        if self._folders and own.address:
            folder, name = self._folders[0], self._name(mesh)
            before = [one for one in _contacts(left_files.read(folder, name)) if one.id != own.id]
            lines = [f"{one.id:064x} {one.address}\n" for one in (own, *before)[:KEPT]]
            left_files.write(folder, name, "".join(lines))

    def found(self, mesh: str) -> list[Contact]:
        """Those that were left, the newest first; some may be gone."""
        return [one for folder in self._folders for one in _contacts(left_files.read(folder, self._name(mesh)))]

    def _name(self, mesh: str) -> str:
        return f"members-{self._fingerprint[:16]}-{hashlib.sha256(mesh.encode()).hexdigest()[:16]}"


def _contacts(text: str) -> list[Contact]:
    matches = [_LINE.fullmatch(line) for line in text.splitlines()[:KEPT]]
    return [Contact(parse_key(match[1]), match[2]) for match in matches if match is not None]
