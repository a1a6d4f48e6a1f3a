"""Requests whose body or answer is too large to be held in memory, by the standard library's client.

That takes longer to import than everything else of a connection, and most processes move nothing large: it is imported
with the first such request. What it raises is an OSError here, as it is of any other lost connection.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from shoal.model.blobs import Bytes
from shoal.wire.http.http1 import NoAnswer

if TYPE_CHECKING:
    from shoal.wire.http.connection import Connection


class StreamedResponse(http.client.HTTPResponse):
    """A response that is yet to be read."""

    def read(self, amt: Optional[int] = None) -> bytes:
        """Read so many bytes of the body, or all of it."""
        try:
            return super().read(amt)
        except http.client.HTTPException as error:
            raise _explained(error) from None

    def readinto(self, b: Any) -> int:
        """Read into a buffer; how many bytes."""
        try:
            return super().readinto(b)
        except http.client.HTTPException as error:
            raise _explained(error) from None


class _Standard(http.client.HTTPConnection):
    response_class = StreamedResponse


def begin(
    connection: Connection, method: str, target: str, headers: Mapping[str, str], body: Optional[Iterable[Bytes]]
) -> StreamedResponse:
    """Send a request on an open connection; the answer is yet to be read."""
    standard = _Standard(connection.host, connection.port)
    standard.sock = connection.sock
    standard.auto_open = 0
    try:
        try:
            standard.request(method, target, body, dict(headers))
        except (BrokenPipeError, ConnectionResetError):
            # A server may refuse before it has read the whole body, and close the connection: its answer counts more.
            response = standard.getresponse()
            response.will_close = True  # nothing more can be sent on it
        else:
            response = standard.getresponse()
    except http.client.HTTPException as error:
        if isinstance(error, OSError):
            raise
        raise _explained(error) from None
    assert isinstance(response, StreamedResponse)
    return response


def _explained(error: Exception) -> NoAnswer:
    return NoAnswer(str(error) or type(error).__name__)
