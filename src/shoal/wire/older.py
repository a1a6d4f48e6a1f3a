"""Answers for pilots that speak the protocol before this one [contract 8]: what they do not know is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Union

from shoal.wire.messages import ORDERS, PROTOCOL, SINCE, Reply


def for_protocol(kind: str, message: Union[Mapping[str, Any], Reply], protocol: int) -> dict[str, Any]:
    """A Registered (as a mapping) or a Reply as an older protocol has it."""
    said = asdict(message) if isinstance(message, Reply) else dict(message)
    if protocol >= PROTOCOL:
        return said
    if isinstance(message, Reply):
        said["orders"] = [
            _without("Order", order, protocol) for order in said["orders"] if ORDERS[order["kind"]] <= protocol
        ]
        said["leases"] = [_without("Lease", lease, protocol) for lease in said["leases"]]
    return _without(kind, said, protocol)


def _without(kind: str, said: dict[str, Any], protocol: int) -> dict[str, Any]:
    since = SINCE.get(kind, {})
    return {name: value for name, value in said.items() if since.get(name, 1) <= protocol}
