"""Reasons that `shoal why` gives: a stable code for programs, a text for people, and what would help."""

from __future__ import annotations

from collections.abc import Collection

from shoal.model.lazy_dataclass import dataclass

TOO_LARGE, PARENTS, NOT_VISIBLE = "too_large", "parents", "not_visible"
# No pilot that is connected can ever run it: it waits until another joins, or an administrator changes the policy. An
# embedded server has this machine only, so that there nobody need wait.
IMPOSSIBLE = frozenset({TOO_LARGE, NOT_VISIBLE, "requirement", "cannot_run", "no_licence"})

CODES: dict[str, str] = {
    # a task or a run
    "quarantine": "the server restarted and waits for its pilots to report what they run",
    "disk_full": "the disk of the server's state is full, or nearly, so that nothing new begins",
    "planning": "the server plans the run before anything of it starts",
    "not_durable": "the submission is being written to disk",
    PARENTS: "it waits for tasks named in `after`",
    "waits_for_files": "rules of the run wait for files",
    "array_limit": "as many tasks of the array run as its own limit (`%`) allows",
    "category_limit": "as many tasks of its `category` run as that allows",
    "run_limit": "as many tasks of the run run as its `max_running` allows",
    "window": "it is in the window of a site, which begins it if the server is away; else it waits for its turn",
    "no_pilot": "no pilot is connected that serves its owner",
    "provisioning": "machines that may run it were asked for at a site",
    "pilots_ending": "every pilot takes nothing new and ends",
    "pilots_unfit": "no pilot can take tasks just now, for example because a disk is full",
    "tried_elsewhere": "it failed on some hosts or sites, and no other pilot can run it",
    "cannot_run": "no pilot has what it needs to be run, for example a container runtime",
    TOO_LARGE: "it needs more than any pilot has",
    NOT_VISIBLE: "it needs files of its submitter that no pilot sees",
    "requirement": "its requirement holds on no pilot",
    "requirement_now": "its requirement holds on no pilot at the moment",
    "no_licence": "it needs a licence that the policy does not have, or not enough of it",
    "licences_in_use": "all licences that it needs are in use",
    "site_full": "as many tasks run at the site as the policy allows",
    "over_quota": "a quota does not allow it to start",
    "banned": "every fitting pilot, or this one, is banned after failures",
    "on_trial": "the ban of a pilot, host or site is over and one task is tried there",
    "pilot_time": "no pilot lives long enough for it",
    "silent": "every fitting pilot, or this one, is silent",
    "host_in_doubt": "tasks alike failed in a row, and another host shall show whose fault that is",
    "must_be_alone": "pilots were lost that held it, so its next attempt must be alone on a pilot",
    "capacity_reserved": "the only free capacity is reserved for a task that needs more of it",
    "placed_elsewhere": "a pilot has free capacity, but one at the site that a plan directs the task to has some, too",
    "waits_for_data": "a pilot has free capacity, but another one has the inputs of the task",
    "next_round": "a pilot has free capacity; tasks are matched at intervals",
    "next_exchange": "a pilot has free capacity and takes it with its next exchange",
    "busy": "all slots are busy",
    "leased": "a pilot has it and has not started it yet",
    "running": "a pilot runs it",
    "pilot_lost": "its pilot was lost, and its right to run has not ended yet",
    "with_pilots": "tasks of the run are with pilots",
    "final": "it is final",
    "no_server": "no server is running",
    # a pilot or a site
    "draining": "the pilot takes nothing new and ends when it is done",
    "unfit": "the pilot takes nothing just now, for example because its disk is full",
    "holds_alone": "the pilot holds one task alone, to see whether that task ends pilots",
    "cleared": "the pilot gets nothing more until it is empty, for a task that must be alone",
    "holds": "the pilot holds attempts",
    "kept_for_data": "the pilot is kept without a task: it alone at its site has files that ready tasks read",
    "no_task": "no task is ready for the pilot",
    "task_waits": "a ready task fits the pilot and waits for another reason",
    "no_task_fits": "no ready task fits the pilot",
    "gone": "the pilot ended",
    "mesh_accused": "another host says that the pilot gave it files with wrong bytes",
    "mesh_shut_out": "several hosts say so, and no pilot of its site fetches files from it any more",
    "site_trouble": "no machines come from the site",
    "site_queue": "allocations of the site wait in its batch system",
    "site_failure": "an allocation of the site ended before its pilot came",
    "site_note": "why so many machines of the site are asked for, or none",
    "site_pilots": "what the pilots of the site hold",
    # an owner
    "nothing_queued": "nothing of the owner waits or runs",
    "queued": "how many tasks of the owner are not final",
    "share": "what part of the cores is due to the owner",
    "at_limit": "a limit of the policy is used up",
}


def is_impossible(codes: Collection[str]) -> bool:
    """True if by these reasons nothing of a run can ever run on the pilots there are, or only behind what cannot."""
    return not IMPOSSIBLE.isdisjoint(codes) and IMPOSSIBLE.issuperset(set(codes) - {PARENTS})


@dataclass(frozen=True)
class Reason:
    """Why something waits or runs where it does, and what would help; `code` is one of CODES."""

    code: str
    text: str
    fix: str = ""
