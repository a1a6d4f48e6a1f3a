"""Calls about the policy: read it, replace it, change shares inside a group, and the present use of shares
[SPHINX S4; input E74-E76].

Administrators change everything, the manager of a group the shares of its members and nothing else [security S0]. A
reader sees the entries that concern them. Every change is audited, journaled by the engine, and kept with its author.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from shoal.engine.commands import SetPolicy
from shoal.model.errors import BadInput, Conflict, NotFound, Refused, echo
from shoal.model.policy import Policy, outward
from shoal.server.auth.authentication import Caller
from shoal.server.context import CallHandler
from shoal.server.handlers.policy_text import day_of, differences, over_use, row_of, visible
from shoal.server.http.messages import Response
from shoal.server.http.request import Call, answer
from shoal.server.placement import check_objective
from shoal.server.service import PolicyAuthor
from shoal.wire.did_you_mean import did_you_mean
from shoal.wire.http.requests import PolicyBody, SharesBody
from shoal.wire.policy import check_people, dump_policy, parse_policy


class PolicyHandler(CallHandler):
    """Calls about the policy and its shares."""

    # --- reading
    async def read(self, call: Call) -> Response:
        """The policy as far as it concerns the caller, and what of its limits is used."""
        state, now, sees = self.service.engine.state, self.service.clock(), self._sees(call.caller)
        document, hidden = dump_policy(state.accounting.policy), 0
        if not call.caller.is_admin:
            document, hidden = visible(document, sees)
        author, changed = self.service.policy_author
        return answer(
            {
                "version": state.policy_version, "author": author if sees(author) else "", "changed": changed,
                "policy": document, "hidden": hidden,
                "quotas": [row_of(found, now) for found in state.accounting.ledger.standings(now) if sees(found.rule.who)],
            }
        )  # fmt: skip

    def _sees(self, caller: Caller) -> Callable[[str], bool]:
        """A predicate: True if an entry about this owner, "@group" or "*" concerns the caller."""
        owners = self.access.seen_by(caller)
        mine = {"*", *(owners or ()), *("@" + group for group in outward(caller.group))}
        return lambda who: owners is None or who in mine

    def _below(self, caller: Caller) -> set[str]:
        """The members of groups below a manager's own group, and those groups: their shares are the manager's to change."""
        if caller.is_admin or not caller.manages(caller.group):
            return set()
        users = {row.name for row in self.access.users.values() if caller.group in outward(row.grp)}
        return users | {f"@{group}" for group in self._groups() if self._may_divide(caller, group)}

    async def shares(self, call: Call) -> Response:
        """The shares of those whom the caller may see: what is due to them and what they use."""
        state, now, concerns = self.service.engine.state, self.service.clock(), self._sees(call.caller)
        below = self._below(call.caller)

        def sees(who: str) -> bool:
            return concerns(who) or who in below

        tree, shares, groups = state.accounting.tree, state.accounting.policy.shares, state.groups
        cores = {name: running for name, running in tree.cores().items() if running > 0}
        queued = {name: count for name, count in state.accounting.ledger.counts().queued.items() if count > 0}
        due = tree.due(sorted({*cores, *queued}), now)
        total, used = sum(cores.values()), tree.usage("", now)

        def members(group: str) -> list[str]:  # also of the groups below it
            return [owner for owner, inner in groups.items() if group in outward(inner)]

        def row(name: str, share: float, members: list[str]) -> dict[str, Any]:
            running = sum(cores.get(member, 0.0) for member in members)
            parts, usage = [due[member] for member in members if member in due], tree.usage(name, now)
            return {
                "share": share, "due": sum(parts) if parts else None,
                "used": running / total if total else 0.0, "usage": usage, "part": usage / used if used > 0 else 0.0,
                "cores": round(running), "queued": sum(queued.get(member, 0) for member in members),
            }  # fmt: skip

        owners = sorted(name for name in {*self.access.users, *queued, *cores} if sees(name))
        names = sorted({name for group in (*self.access.groups, *groups.values()) for name in outward(group)})
        return answer(
            {
                "shares": [
                    {"owner": name, "group": groups.get(name, ""), **row(name, shares.get(name, 1.0), [name])}
                    for name in owners
                ],
                "groups": [
                    {"group": name, **row(f"@{name}", shares.get(f"@{name}", 1.0), members(name))}
                    for name in names
                    if sees(f"@{name}")
                ],
            }
        )

    # --- changing
    async def change(self, call: Call) -> Response:
        """Replace the whole policy; or, with dry_run, only return what that would change."""
        request = read_change(await call.body(dict))
        policy = parse_policy(request.policy)
        users = {row.name: row.grp for row in self.access.users.values()}
        check_people(policy, users, self.access.groups)
        check_objective(policy.placement.objective)
        now = self.service.engine.state.policy_version
        if request.version != now:
            author, changed = self.service.policy_author
            who = f", changed by {echo(author)} at {day_of(changed or 0.0)}" if author else ""
            raise Conflict(
                f"the policy is at version {now}{who}; this is based on version {request.version}", code="stale_policy",
                field="version", hint="look at it again with `shoal policy show`",
            )  # fmt: skip
        return await self._set(call, policy, request.dry_run)

    async def change_shares(self, call: Call) -> Response:
        """Change shares: a manager those of whoever is in their group or in one below it, and of the groups below; an
        administrator those of anybody."""
        request, caller = await call.body(SharesBody), call.caller
        if not caller.manages(caller.group):
            hint = "ask a manager of your group or an administrator"
            raise Refused("only a manager or an administrator changes shares", code="forbidden", hint=hint)
        if not request.shares:
            raise BadInput("there is no share in it", code="required", field="shares", hint='e.g. {"anna": 2}')
        users = {row.name: row.grp for row in self.access.users.values()}
        if not caller.is_admin:
            users = {name: group for name, group in users.items() if caller.group in outward(group)}
        before = self.service.engine.state.accounting.policy
        new = parse_policy({"share": request.shares}).shares
        for who in new:
            known = who in users if not who.startswith("@") else self._may_divide(caller, who[1:])
            if not known:
                raise self._unknown(caller, who)
        document = {**dump_policy(before), "share": {**before.shares, **new}}
        after = parse_policy(document)
        # A manager gets errors of the own group only: shares elsewhere are not theirs to see or to correct.
        mine = {
            who: share
            for who, share in after.shares.items()
            if caller.is_admin or who in users or (who.startswith("@") and self._may_divide(caller, who[1:]))
        }
        inner = [name for name in self.access.groups if caller.is_admin or caller.group in outward(name)]
        check_people(Policy(shares=mine), users, inner)
        return await self._set(call, after, False)

    def _may_divide(self, caller: Caller, group: str) -> bool:
        """True if there is such a group and its share is the caller's to change. A manager divides what their own group
        gets; how much that is, others decide."""
        return group in self._groups() and (
            caller.is_admin or (group != caller.group and caller.group in outward(group))
        )

    def _groups(self) -> set[str]:
        return {name for group in self.access.groups for name in outward(group)}

    def _unknown(self, caller: Caller, who: str) -> NotFound | Refused:
        """One text for names that do not exist and names that are not the caller's to change; the own group is no secret."""
        kind = "group" if who.startswith("@") else "user"
        if who[1:] in outward(caller.group) and not caller.is_admin:
            hint = "ask an administrator: a manager divides what the group gets"
            return Refused(f"the share of {echo(who)} itself is not yours to change", code="forbidden", hint=hint)
        hint = f"see `shoal {kind} list`"
        return NotFound(f"there is no {kind} {echo(who)}", code=f"unknown_{kind}", field="shares", hint=hint)

    async def _set(self, call: Call, policy: Policy, dry_run: bool) -> Response:
        state, now = self.service.engine.state, self.service.clock()
        before, version = state.accounting.policy, state.policy_version
        changes = differences(before, policy)
        notes: list[str] = []
        if policy.quotas != before.quotas:
            notes = over_use(self.service.engine.standings_under(policy.quotas, now), before.quotas)
        call.about = ("dry run: " if dry_run else "") + ("; ".join(changes) or "nothing")
        if changes and not dry_run:
            author = call.caller.owner
            command = SetPolicy(policy, json.dumps(dump_policy(policy)), author)
            self.service.policy_author = PolicyAuthor(author, now)
            version = (await self.service.command(command))["version"]
        return answer({"version": version, "changes": changes, "notes": notes, "dry_run": dry_run})


def read_change(body: dict[str, Any]) -> PolicyBody:
    """The body of a change, its outer fields checked; `parse_policy` checks the rest."""
    for field, kind, expected in (("version", int, "a whole number"), ("policy", dict, "an object")):
        if field not in body:
            raise BadInput(f"{field} is missing", code="required", field=field, hint="version, policy, dry_run")
        if not isinstance(body[field], kind) or isinstance(body[field], bool):
            raise BadInput(f"expected {expected}", code="wrong_type", field=field)
    for field in body:
        if field not in ("version", "policy", "dry_run"):
            hint = did_you_mean(str(field), ["version", "policy", "dry_run"])
            raise BadInput(f"unknown field {echo(field)!r}", code="unknown_field", field=echo(field), hint=hint)
    if not isinstance(body.get("dry_run", False), bool):
        raise BadInput("expected true or false", code="wrong_type", field="dry_run")
    return PolicyBody(body["version"], body["policy"], body.get("dry_run", False))
