"""The kinds of events in the journal [protocol 7]. Logs are for people, events for programs."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

KINDS: dict[str, str] = {
    "server_started": "a server opened the database; data: incarnation",
    "server_resumed": "the server had not run for a while (frozen, asleep): every pilot got a new lease; data: seconds",
    "engine_rebuilt": "a command met a defect; it was undone and the memory was made anew from the database; data: why",
    "run_submitted": "a run was accepted; data: name, tasks",
    "run_finished": "every task of a run is final; data: counts by state",
    "goal_reached": "what the tasks of a run emitted meets its goal, and the rest was cancelled; data: until, values, tasks, "
    "running, cancelled",
    "goal_dropped": "a goal could not be judged, and the run goes on without it; data: until, why",
    "emitted_left_out": "what a task emitted could not be merged, and is left out; data: why",
    "deadline_stated": "a run with a deadline was accepted; data: due, and the chance that its submitter was told, if one was",
    "deadline_at_risk": "a run will probably miss its deadline; data: due, chance",
    "notice_sent": "a URL or a command was told of something; data: what, to, of (the event), tries",
    "notice_failed": "it could not be told, and that was given up; data: what, to, of (the event), tries, why",
    "run_planned": "a run went from one planning state (step) to another (stage); data: step, stage, and what was found",
    "tasks_grown": "a rule of a run made tasks of files; data: rule, first, tasks, waiting (files that it has left)",
    "watch_ended": "no more files come to a run from outside; data: files (that its rules took)",
    "growth_stopped": "the rules of a run make nothing any more; data: why, waiting (files)",
    "tasks_added": "an open run got more tasks; data: first, tasks",
    "run_aborted": "a task ended with an exit code that ends its run; data: exit_code",
    "run_reopened": "a person retried tasks of a finished run, which is open again; data: tasks",
    "piece_cut": "a piece of divisible work was made for a pilot; data: first, units",
    "tasks_leased": "attempts were handed to a pilot; data: attempts, chunks ([first attempt, how many]), "
    "inputs (by attempt, files on its host, their bytes, all files and bytes)",
    "tasks_started": "a pilot began attempts; data: attempts",
    "end_uncertain": "an exclusive or never task began where it might outlive its pilot and guard; data: why",
    "task_finished": "a task became final; data: state, cause, exit code, duration, host, ...",
    "task_retried": "an attempt failed and the task is ready again; data: cause, retries left, burnt, why, memory, seconds",
    "checkpoint_saved": "the first checkpoint of an attempt that runs on is kept; data: files",
    "task_checkpointed": "a task wrote a checkpoint and goes on later; data: part, files, seconds, why",
    "task_moved": "a pilot was ordered to stop a slow task, which continues elsewhere; data: why",
    "task_backed_up": "a second copy of a slow task was handed to another pilot; data: why, beside (whom), since",
    "task_returned": "a pilot gave an attempt back; nothing is burnt; data: why, started, seconds",
    "task_lost_pilot": "the pilot of an attempt went silent or ended; data: losses, what happens next, seconds",
    "task_signalled": "a person sent a signal to a running task; data: signal",
    "task_adopted": "a result or a living copy of an earlier attempt was accepted; data: how; of one that "
    "its site had begun by itself: ended (by then)",
    "reports_delivered": "others delivered reports of this pilot that they had kept; data: attempts, how many of them counted",
    "report_refused": "a report did not count; data: why",
    "tasks_closed": "tasks that never ran became final in bulk; data: ranges, count, state, cause, why",
    "tasks_released": "tasks became ready because their parents succeeded; data: ranges",
    "tasks_reset": "a person retried tasks while the run was open; data: tasks",
    "tasks_changed": "a person gave tasks that had not begun other values of fields; data: fields, tasks",
    "run_removed": "a person removed a finished run; data: name, tasks",
    "tasks_reused": "elements were not run again because an earlier run has them; data: origins, count",
    "pilot_joined": "a pilot registered; data: host, cores, memory, former, how many pilots this host had before",
    "pilot_unfit": "a host failed the environment check; data: reasons",
    "pilot_draining": "a pilot takes no new tasks; data: why",
    "pilot_suspect": "a pilot is silent; data: since",
    "pilot_gone": "a pilot ended or was given up; data: reason",
    "leader_named": "a pilot leads the mesh of its site from now on; data: term, members",
    "site_back": "a site was heard again after its server, or its leader, was away; data: begun (tasks that it began meanwhile), "
    "released (those that it did not), site, since (when its members were heard last, or the server was known to run), until",
    "peer_accused": "a pilot says that another of its mesh gave it wrong bytes; data: by, why, whether it is shut out now",
    "place_failed": "a place of files (a peer, a storage, a URL) did not give one that it should have; data: place, why",
    "tags_published": "a task left tags on its pilot; data: tags, refused",
    "place_banned": "a pilot, host or site gets nothing for a while; data: place, name, reason, until",
    "place_lifted": "a ban is over; data: place, name, why",
    "allocation_submitted": "a batch system took an allocation; data: site, backend, allocation (name, cores, seconds)",
    "allocation_started": "an allocation began to run; data: site, backend, allocation (name, cores, seconds)",
    "allocation_ended": "an allocation is over; data: site, backend, allocation (name, reason, cores, seconds)",
    "site_trouble": "no machines come from a site, or do again (empty trouble); data: site, trouble, fix",
    "policy_changed": "shares, quotas or other rules changed; data: version, author",
}

BEGUN_BY_SITE = "begun by its site"  # how an attempt was adopted that a mesh began while the server was away


class Event(NamedTuple):
    """One entry of the journal. `seq` orders the whole journal of one database without gaps."""

    seq: int
    time: float
    kind: str
    run: Optional[int] = None
    task: Optional[int] = None
    attempt: Optional[int] = None
    pilot: Optional[str] = None
    site: Optional[str] = None
    data: dict[str, Any] = {}  # noqa: RUF012  # a NamedTuple has no factories; never changed
    owner: str = ""  # whose it is; `@phys`: a group's; empty: the server's own
