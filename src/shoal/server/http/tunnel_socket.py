"""TLS on a Unix socket, for a server without a port of its own: tunnels lead from other hosts to it [ADR 0045].

Callers are treated as those of a TLS port. That the kernel names our own account at the other end means nothing: it is
the end of the tunnel.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.model.file_names import TUNNEL_SOCKET
from shoal.server.context import Context
from shoal.server.http.listen import bind_local
from shoal.server.http.protocol import HttpServer

if TYPE_CHECKING:
    from shoal.server.auth.certificate_authority import CertificateAuthority

log = logging.getLogger(__name__)


class TunnelSocket:
    """The socket, opened when it is asked for."""

    def __init__(self, context: Context, server: HttpServer, listeners: list[asyncio.Server]) -> None:
        self._context, self._server, self._listeners = context, server, listeners
        self._lock = asyncio.Lock()
        self._path: Path | None = None

    async def open(self) -> tuple[Path, str]:
        """Listen, if that was not done; returns the path of the socket and the CA's fingerprint."""
        async with self._lock:
            context = self._context
            if context.authority is None:
                context.authority = await asyncio.to_thread(self._open_authority)
            if self._path is None:
                path = context.service.state_dir / TUNNEL_SOCKET
                tls_context = context.authority.context()
                self._listeners.append(await bind_local(context.connections, self._server, path, tls_context))
                self._path = path
                log.info("listening for tunnels socket=%s", path)
            return self._path, context.authority.fingerprint

    def _open_authority(self) -> CertificateAuthority:
        # A server that nobody reaches from elsewhere need not load the library.
        from shoal.server.auth.certificate_authority import CertificateAuthority

        return CertificateAuthority.open(
            self._context.service.state_dir, self._context.names, self._context.service.clock()
        )
