"""Changes of the policy and of groups, and the limit of queued tasks [SPHINX S4]."""

from __future__ import annotations

from typing import Any

from shoal.engine.changes import PolicyRow
from shoal.engine.commands import Regroup, SetPolicy
from shoal.engine.state import State
from shoal.model.errors import Conflict


def set_policy(state: State, command: SetPolicy) -> dict[str, Any]:
    """Change the policy: nothing that runs is stopped, what it does not allow does not start [input E75]."""
    state.policy_version += 1
    _apply(state, command)
    state.queue.set_rule(command.policy.order, state.now)
    state.change(PolicyRow(state.policy_version, state.now, command.author, command.document))
    state.emit("policy_changed", owner="", version=state.policy_version, author=command.author)
    return {"version": state.policy_version}


def _apply(state: State, command: SetPolicy) -> None:
    if state.accounting.change(command.policy, state.now):
        return
    # Usage is counted in another way: running cores are added to the new tree, earlier usage is forgotten.
    for owner, owned in state.queue.owners.items():
        if owned.order:
            state.accounting.tree.wake(owner, state.now)
    for run in state.runs.values():
        for array in run.arrays:
            for task in array.tasks.values():
                for attempt in task.live.values():
                    if attempt.cores:
                        state.accounting.tree.start(run.owner, state.now, attempt.cores, attempt.counted)


def regroup(state: State, command: Regroup) -> None:
    """A person is in another group: shares, quotas and pilots follow."""
    state.groups[command.owner] = command.group
    if command.owner in state.queue.owners:
        state.queue.owners[command.owner].invalidate()  # expressions may read the group
    state.accounting.change(state.accounting.policy, state.now)


def check_queue(state: State, owner: str, count: int) -> None:
    """Refuse more tasks than an owner may have waiting."""
    block = state.accounting.ledger.may_queue(owner, count, state.now) if count > 0 else None
    if block is not None:
        raise Conflict(block.text, code="over_quota", hint="wait until some are done, or ask for more: `shoal quota`")
