"""Calls about the policy and shares, a part of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Json = dict[str, Any]


class Asks(Protocol):
    """What these calls need of the client."""

    def _json(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Json: ...


class PolicyCalls:
    """What a client can ask about the policy."""

    def policy(self: Asks) -> Json:
        """The policy as far as it concerns the caller: `version`, `author`, `changed`, `policy`, `hidden`, `quotas`."""
        return self._json("GET", "/v1/policy")

    def set_policy(self: Asks, policy: Mapping[str, Any], version: int, dry_run: bool = False) -> Json:
        """Another policy in place of a version, or what it would change: `version`, `changes`, `notes`, `dry_run`."""
        body = {"version": version, "policy": dict(policy), **({"dry_run": True} if dry_run else {})}
        return self._json("POST", "/v1/policy", body=body)

    def shares(self: Asks) -> Json:
        """What is due to people and groups and what they use: `shares`, `groups`."""
        return self._json("GET", "/v1/shares")

    def set_shares(self: Asks, shares: Mapping[str, float]) -> Json:
        """Other shares for these: `version`, `changes`, `notes`, `dry_run`."""
        return self._json("POST", "/v1/policy/shares", body={"shares": dict(shares)})
