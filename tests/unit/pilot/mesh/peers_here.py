"""Two peers of one mesh in this process, with real certificates and real connections on loopback."""

from __future__ import annotations

import contextlib
import hashlib
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from shoal.dht.peers import mesh_uri, parse_mesh_uri
from shoal.dht.routing_table import Contact
from shoal.model.blobs import Bytes
from shoal.pilot.mesh.links import Credentials, Links
from shoal.pilot.mesh.listener import Listener, OpenFile, open_port
from shoal.pilot.mesh.peer_table import PeerTable
from shoal.pilot.uplink.tls import peer_contexts
from shoal.server.auth.certificate_authority import CertificateAuthority


class Written:
    """Where a file is written."""

    def __init__(self, digest: str, limit: int = 1 << 30) -> None:
        self.data, self._digest, self._limit = bytearray(), digest, limit
        self.restarts = 0

    def __call__(self, data: Bytes) -> None:
        self.data += data

    @property
    def written(self) -> int:
        return len(self.data)

    def expect(self, size: int) -> None:
        self.expected = size

    def restart(self) -> None:
        self.data.clear()
        self.restarts += 1

    def is_right(self) -> bool:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}" == self._digest


class Here:
    """One of them."""

    def __init__(
        self, authority: CertificateAuthority, id: int, mesh: str = "uni", serves: OpenFile = lambda digest: None
    ) -> None:
        uri = mesh_uri(mesh, "anna", f"{id:064x}")
        chain = "\n".join(authority.pilot_certificate(f"p{id}", 3600.0, time.time(), uri))
        contexts = peer_contexts(chain.encode(), [ssl.PEM_cert_to_DER_cert(authority.ca_pem)])
        named = parse_mesh_uri(uri)
        server = open_port((0,))
        assert named is not None
        assert server is not None
        self.contact = Contact(id, f"127.0.0.1:{server.getsockname()[1]}")
        self.members: Callable[[int], bool] = lambda id: True
        self.links = Links(Credentials(named, *contexts), self.contact.address)
        self.table = PeerTable(self.contact, self.links, Random(id), lambda id: self.members(id))
        self.table.start()
        self.listener = Listener(server, serves)
        self.listener.serve(self.table, self.links, lambda id: self.members(id))

    def close(self) -> None:
        """End."""
        self.listener.close()
        self.table.close(leaves=False)
        self.links.close()


@contextlib.contextmanager
def here(folder: Path, *ids: int, **more: object) -> Iterator[list[Here]]:
    """So many peers."""
    authority = CertificateAuthority.open(folder, [], time.time())
    found = [Here(authority, id, **more) for id in ids]  # type: ignore[arg-type]
    try:
        yield found
    finally:
        for one in found:
            one.close()
