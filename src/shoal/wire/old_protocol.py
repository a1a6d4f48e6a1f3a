"""Answers for pilots with the protocol before this one [protocol 8]: fields that they do not know are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Union

from shoal.model.ids import parse_attempt, start_count
from shoal.wire.messages import ORDERS, PROTOCOL, SINCE, Reply

NONCES_SINCE = 5  # the protocol from which on attempts are named with the nonce of their run


def for_protocol(kind: str, message: Union[Mapping[str, Any], Reply], protocol: int) -> dict[str, Any]:
    """A Registered (as a mapping) or a Reply as an older protocol has it."""
    plain = asdict(message) if isinstance(message, Reply) else dict(message)
    if protocol >= PROTOCOL:
        return plain
    if isinstance(message, Reply):
        plain["orders"] = [
            _without("Order", order, protocol) for order in plain["orders"] if ORDERS[order["kind"]] <= protocol
        ]
        plain["leases"] = [_without("Lease", lease, protocol) for lease in plain["leases"]]
        if protocol < NONCES_SINCE:
            for named in (*plain["leases"], *plain["orders"], *plain["verdicts"]):
                named["attempt"] = _short(named["attempt"]) if named["attempt"] else ""
    return _without(kind, plain, protocol)


def _short(text: str) -> str:
    """The name of an attempt as pilots knew it that take no nonce, and no incarnation of more than nine digits."""
    attempt = parse_attempt(text)
    return f"{attempt.text}@{start_count(attempt.incarnation)}"


def _without(kind: str, plain: dict[str, Any], protocol: int) -> dict[str, Any]:
    since = SINCE.get(kind, {})
    return {name: value for name, value in plain.items() if since.get(name, 1) <= protocol}
