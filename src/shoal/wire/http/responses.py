"""Responses of the server, one type for each call: the source of their OpenAPI description; tests check responses by it.

Rows of lists are the columns of the database, which grow; they are described as plain objects.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from types import GenericAlias
from typing import Any, Optional

Row = dict[str, Any]


def _answer(name: str, about: str, /, **fields: Any) -> Any:
    """A dataclass with these fields, all of which are always there."""
    made = make_dataclass(name, list(fields.items()), frozen=True)
    made.__doc__ = about
    return made


def _list(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


# fmt: off
Failure = _answer("Failure", "Why a call was refused.", code=str, message=str, field=str, hint=str)
ErrorAnswer = _answer("ErrorAnswer", "Every refusal.", error=Failure)
Ok = _answer("Ok", "The server answers.", ok=bool)
Submitted = _answer("Submitted",
    "A run was accepted, or had been with the same key; with `dry_run` it would be, and `run` is empty. `reuses`: the first "
    "elements whose results are taken over, and from which tasks. `outlook`, of a dry run: slots for its tasks if nothing else "
    "ran, and earlier runs of the same command.",
    run=str, tasks=int, reused=int, again=bool, reuses=list[Row], reruns=list[Row], warnings=list[str],
    outlook=Optional[Row])
ClosedRun = _answer("ClosedRun", "Nothing more is added to a run.", run=str, finished=bool)
ResultsPage = _answer("ResultsPage",
    "Tasks that became final: element, state, result, cause, message, attempt, last line, bytes of stdout and of "
    "stderr; and ranges of those that never ran: low, high (not in it), state, cause, message. `foreign`: "
    "elements of the page whose result was made on a pilot that is not the reader's own. `nonce`: names the run even "
    "where its number is used again, after a database was restored.",
    results=list[list[Any]], closed=list[list[Any]], last=int, finished=bool, foreign=list[int], nonce=str)
Added = _answer("Added",
    "Tasks were added to an open run, or had been. `page`: where `after` was given, what has become final since then, if it "
    "is at hand.",
    run=str, first=int, tasks=int, again=bool, page=Optional[ResultsPage])
BlobPut = _answer("BlobPut",
    "How much of a blob is here; `whole`: all of it, and the caller holds it.",
    digest=str, size=int, offset=int, whole=bool)
RunsPage = _answer("RunsPage", "Runs, newest first.", runs=list[Row], next=Optional[str])
OneRun = _answer("OneRun",
    "One run whole, but for its tasks.",
    run=int, owner=str, name=str, created=float, finished=Optional[float], total=int, counts=dict[str, int],
    arrays=list[Row], spans=list[Row], emits=bool, goal=Optional[Row], rules=list[Row], planning=Optional[Row])
Planned = _answer("Planned", "The planning state of a run, and whether it was changed.", run=str, stage=str, advanced=bool)
FilesTold = _answer("FilesTold", "How many files were new to the rules of a run, and how many tasks they made.",
    run=str, files=int, tasks=int)
MachinesAnswer = _answer("MachinesAnswer",
    "How many tasks of a run run at which site, what its tasks were seen to take (samples, median and p95 in seconds, memory "
    "and output of the largest in bytes, memory that is asked for; null: none came back yet), and what the provisioner of "
    "its owner says of each site.",
    running=dict[str, int], learned=Optional[Row], sites=list[Row])
PartialAnswer = _answer("PartialAnswer",
    "What the tasks of a run emitted, merged: `tasks` that succeeded are counted for good, `running` ones as far as they have "
    "come; `left_out`: lines that could not be read, values of names that were too many. An answer has the name, its reducer, "
    "n, and what that reducer gives. `goal`: until, reached, and the values of its functions; null: the run has none.",
    run=str, tasks=int, running=int, left_out=int, goal=Optional[Row], answers=list[Row])
TasksPage = _answer("TasksPage", "Rows of a run's tasks.", tasks=list[Row], next=Optional[int])
OneTask = _answer("OneTask",
    "One task with its history.",
    run=Row, array=Row, task=Optional[Row], span=Optional[Row], state=str, events=list[Row])
Because = _answer("Because", "One reason, and what would help.", text=str, fix=str)
WhyAnswer = _answer("WhyAnswer", "Why something is where it is.", target=str, state=str, reasons=_list(Because))
Cancelled = _answer("Cancelled", "How many tasks were cancelled.", cancelled=int, already_final=int)
Retried = _answer("Retried", "How many tasks are ready again, and of which runs.", tasks=int, runs=list[str])
Signalled = _answer("Signalled", "How many running tasks get the signal.", signalled=int, not_running=int)
FieldsSet = _answer("FieldsSet",
    "How many tasks have other fields now, and how many had begun: they have them from their next attempt on.",
    tasks=int, begun=int, warnings=list[str])
Removed = _answer("Removed", "How many runs were removed, with how many tasks and bytes of logs.",
    runs=int, tasks=int, log_bytes=int)
FilesPage = _answer("FilesPage",
    "A directory of a running task: name, kind (file, directory, link, other), size and time of each entry; `total`: how "
    "many there are, of which the first are listed.",
    directory=str, entries=list[Row], total=int)
EventsPage = _answer("EventsPage", "A part of the journal; go on after `last`.", events=list[Row], last=int)
PilotsPage = _answer("PilotsPage", "Pilots, newest first.", pilots=list[Row])
HostsPage = _answer("HostsPage", "Hosts, the one seen last first.", hosts=list[Row])
AcctAnswer = _answer("AcctAnswer",
    "Sums of the accounts. A line has the columns of `by` and useful, failed, lost and duplicated core seconds, "
    "tasks, seconds queued and of staging. A place has those columns and the core seconds that its pilots offered "
    "and that were used by anybody; there are none where lines are of owners or runs.",
    by=list[str], since=float, until=float, lines=list[Row], places=Optional[list[Row]])
Drained = _answer("Drained", "How many pilots were asked to end.", pilots=int)
PolicyAnswer = _answer("PolicyAnswer",
    "The policy: its version, who changed it last and when, the document, how many lines of it concern only "
    "others, and each limit with what of it is used.",
    version=int, author=str, changed=Optional[float], policy=Row, hidden=int, quotas=list[Row])
PolicyChanged = _answer("PolicyChanged",
    "What changed (or would), a line each, and what that means for what runs already.",
    version=int, changes=list[str], notes=list[str], dry_run=bool)
SharesPage = _answer("SharesPage",
    "Shares of people and groups: what part of the cores is due, what part is used, and usage as it weighs now.",
    shares=list[Row], groups=list[Row])
WhoAnswer = _answer("WhoAnswer",
    "Who the caller is.",
    owner=str, group=str, role=str, kind=str, scopes=list[str], expires=float, token=str)
UserAnswer = _answer("UserAnswer", "One person.", name=str, group=str, role=str, created=float)
UsersPage = _answer("UsersPage", "People.", users=_list(UserAnswer))
GroupAnswer = _answer("GroupAnswer", "One group.", name=str, created=float)
GroupsPage = _answer("GroupsPage", "Groups.", groups=list[Row])
SiteAnswer = _answer("SiteAnswer",
    'One site and whose its name is: owners, "@GROUP"s, "*" for everybody.',
    name=str, holders=list[str], created=float)
WeatherAnswer = _answer("WeatherAnswer",
    "The weather of the caller's sites: of each quantity the last value and its time, the forecast with the interval in which "
    "80 % of what comes is expected, how such forecasts did before, and the history.",
    sites=dict[str, Row])
SitesPage = _answer("SitesPage", "Sites.", sites=_list(SiteAnswer))
DemandAnswer = _answer("DemandAnswer",
    "What the caller's ready tasks need, in groups of those that are alike, and the pilots that serve the caller. "
    "`unfit_sites` of a need: where every pilot that is connected cannot run it; `sites`: the last report of each.",
    needs=list[Row], pilots=list[Row], unfinished=int, sites=list[Row])
TokensPage = _answer("TokensPage", "Tokens without their secrets.", tokens=list[Row])
TokenMade = _answer("TokenMade",
    "A new token: its secret is in this answer and nowhere else.",
    id=str, token=str, kind=str, owner=str, group=str, site=str, expires=float, addresses=list[str],
    fingerprint=str, pilot_sha256=str)
Revoked = _answer("Revoked", "How many tokens and pilots ended.", revoked=int, pilots=int)
AuditPage = _answer("AuditPage", "Uses of tokens, newest first.", audit=list[Row], next=Optional[int])
ServerAnswer = _answer("ServerAnswer",
    "The state of a server; administrators get more. `sites`: what each site does for the caller.",
    mode=str, since=float, version=str, sites=list[Row])
Stopping = _answer("Stopping", "The server ends.", stopping=bool)
TunnelAnswer = _answer("TunnelAnswer", "Where TLS is served for tunnels.", socket=str, fingerprint=str)
PruneAnswer = _answer("PruneAnswer", "What was deleted.", events=int, log_bytes=int)
# fmt: on
