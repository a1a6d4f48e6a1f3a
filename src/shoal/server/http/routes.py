"""The route table: every call of the server, who may make it, what it may access, what it takes [security S13].

`kinds` are the kinds of token that it accepts, `scope` what a submit token must have, `rule` which objects it may access:

public   no token is needed
caller   about the caller
run, task, target   the path names something: it must be the caller's (or their group's, for a manager), else 404
blob     the path names a blob: to be read, an owner whom the caller may see must hold it, else 404; to be put, it is sent
targets  the body names such objects, all of which must be the caller's
listing  shows what the caller may see and nothing else
pilot    a pilot calls for itself
admin    administrators only

The security matrix of the tests, the OpenAPI description and the router are generated from this table.
"""

from __future__ import annotations

from shoal.model.credentials import ENROL, SESSION, SUBMIT
from shoal.model.lazy_dataclass import dataclass
from shoal.model.limits import MAX_BLOB, MAX_BODY, MAX_BULK_BODY, MAX_NAME, MAX_PAGE, MAX_PEEK, MAX_RESULTS, MAX_WAIT
from shoal.wire.http import requests
from shoal.wire.messages import Bundle, Exchange, Register

RULES = ("public", "caller", "run", "task", "target", "blob", "targets", "listing", "pilot", "admin")
MAX_NUMBER = 10**18


@dataclass(frozen=True)
class Query:
    """One parameter of a call: a whole number within bounds, or a text."""

    name: str
    kind: type = str
    default: int | str | None = None
    low: int = 0
    high: int = MAX_NUMBER


@dataclass(frozen=True)
class Route:
    """One call."""

    method: str
    path: str
    handler: str  # module and method: `runs.submit`
    about: str
    answer: str  # a name in wire/http/responses.py or wire/messages.py; empty for `text`
    kinds: tuple[str, ...] = (SUBMIT,)
    scope: str = "read"
    rule: str = "listing"
    query: tuple[Query, ...] = ()
    body: type | None = None
    most: int = MAX_BODY
    acts: bool = False  # each call has a row of its own in the audit
    pace: str = ""  # another rate than that of the token's kind
    text: str = ""  # the media type of an answer that is not JSON
    takes: str = ""  # the media type of a body that is not JSON


_LIMIT = Query("limit", int, MAX_PAGE, 1, MAX_PAGE)
_AFTER = Query("after", int, 0)
_ALL = (SUBMIT, ENROL, SESSION)
_HOLDERS = (SUBMIT, SESSION)  # kinds of token that may hold blobs
_BLOB, _BYTES = "/v1/blobs/{digest}", "application/octet-stream"
_FOR_RUN = Query("run")  # a pilot that serves several people names the run whose owner gets the blob
_FOR_USE = Query("for")  # `checkpoint`: it is held while a task of that run needs it
_BLOBS = (
    Route("PUT", _BLOB, "blobs.put", "Put bytes under their digest, whole or (Content-Range) from where an upload broke off.",
          "BlobPut", _HOLDERS, "submit", "blob", (_FOR_RUN, _FOR_USE), most=MAX_BLOB, takes=_BYTES),
    Route("HEAD", _BLOB, "blobs.head", "Is a blob here? If not, X-Shoal-Offset says how much of an upload is.",
          "", _HOLDERS, rule="blob", query=(_FOR_RUN,), text=_BYTES),
    Route("GET", _BLOB, "blobs.get", "The bytes of a blob; Range is honoured.", "", _HOLDERS, rule="blob", text=_BYTES),
    Route("GET", f"{_BLOB}/peers", "blobs.peers", "Which pilots of the asker's mesh fetched a blob.", "BlobPeers",
          _HOLDERS, rule="blob"),
)  # fmt: skip

ROUTES: tuple[Route, ...] = (
    # --- runs and tasks
    Route("POST", "/v1/runs", "runs.submit", "Submit a run.", "Submitted", scope="submit", rule="caller",
          body=requests.SubmissionBody, most=MAX_BULK_BODY, acts=True),
    Route("GET", "/v1/runs", "runs.list_runs", "Runs, newest first.", "RunsPage",
          query=(Query("state"), Query("name"), Query("owner"), Query("limit", int, 50, 1, MAX_PAGE), Query("before"))),
    Route("GET", "/v1/runs/{run}", "runs.run", "One run with its arrays, spans and counts.", "OneRun", rule="run"),
    Route("POST", "/v1/runs/{run}/tasks", "open.add", "Add tasks to an open run.", "Added", scope="submit", rule="run",
          body=requests.AdditionBody, query=(Query("after", int, None),), most=MAX_BULK_BODY, pace="calls"),
    Route("POST", "/v1/runs/{run}/close", "open.close", "Nothing more is added to a run.", "ClosedRun", scope="submit",
          rule="run", body=requests.Nothing, acts=True),
    Route("POST", "/v1/runs/{run}/files", "open.files", "Tell the rules of a run of files.", "FilesTold", scope="submit",
          rule="run", body=requests.FilesBody, acts=True),
    Route("POST", "/v1/runs/{run}/accept", "open.accept", "Accept a run that is planned and waits for that.", "Planned",
          scope="submit", rule="run", body=requests.Nothing, acts=True),
    Route("GET", "/v1/runs/{run}/results", "open.results",
          "Tasks of a run that became final, in the order of the journal.", "ResultsPage", rule="run",
          query=(_AFTER, Query("limit", int, MAX_RESULTS, 1, MAX_RESULTS), Query("wait", int, 0, 0, MAX_WAIT)),
          pace="calls"),
    Route("GET", "/v1/runs/{run}/tasks", "runs.tasks", "Rows of a run's tasks.", "TasksPage", rule="run",
          query=(_AFTER, _LIMIT, Query("state"), Query("values", int, 0, 0, 1))),
    Route("GET", "/v1/runs/{run}/machines", "sites.machines", "Where a run's tasks run, what they take, and what sites do.",
          "MachinesAnswer", rule="run"),
    Route("GET", "/v1/runs/{run}/partial", "runs.partial", "What a run's tasks emitted so far, merged.", "PartialAnswer",
          rule="run"),
    Route("GET", "/v1/tasks/{task}", "runs.task", "One task with its history.", "OneTask", rule="task"),
    Route("GET", "/v1/tasks/{task}/logs", "logs.read", "A stream of an attempt, from a byte on.", "", rule="task",
          text="text/plain",
          query=(Query("stream", str, "stdout"), Query("attempt", int, None, 1, 10**9), Query("offset", int, 0),
                 Query("wait", int, 0, 0, MAX_WAIT))),
    Route("GET", "/v1/why/{target}", "runs.why", "Why something is where it is.", "WhyAnswer", rule="target"),
    Route("POST", "/v1/cancel", "runs.cancel", "Cancel runs and tasks.", "Cancelled", scope="cancel", rule="targets",
          body=requests.Targets, acts=True),
    Route("POST", "/v1/retry", "runs.retry", "Run again what did not succeed.", "Retried", scope="submit",
          rule="targets", body=requests.RetryRequest, acts=True),
    Route("POST", "/v1/signal", "runs.signal", "Send a signal to running tasks.", "Signalled", scope="cancel",
          rule="targets", body=requests.SignalRequest, acts=True),
    Route("POST", "/v1/set", "manage.set_fields", "Change fields of tasks that have not begun.", "FieldsSet",
          scope="submit", rule="targets", body=requests.SetRequest, acts=True),
    Route("POST", "/v1/runs/{run}/copy", "manage.copy", "Submit the same work once more, with changes.", "Submitted",
          scope="submit", rule="run", body=requests.CopyRequest, acts=True),
    Route("POST", "/v1/remove", "manage.remove", "Remove finished runs.", "Removed", scope="cancel", rule="targets",
          body=requests.RemoveRequest, acts=True),
    Route("GET", "/v1/tasks/{task}/files", "peek.files", "A directory of a running task.", "FilesPage", rule="task",
          query=(Query("path"),)),
    Route("GET", "/v1/tasks/{task}/file", "peek.file", "A part of a file of a running task.", "", rule="task",
          text=_BYTES, query=(Query("path"), Query("offset", int, 0), Query("tail", int, None, 1, MAX_PEEK),
                              Query("length", int, MAX_PEEK, 1, MAX_PEEK))),
    Route("GET", "/v1/events", "events.read", "Events after a number of the journal.", "EventsPage",
          query=(_AFTER, _LIMIT, Query("run"), Query("kind"), Query("wait", int, 0, 0, 3600))),
    *_BLOBS,
    # --- pilots and hosts
    Route("GET", "/v1/pilots", "pilots.list_pilots", "Pilots, newest first.", "PilotsPage",
          query=(Query("state"), _LIMIT)),
    Route("GET", "/v1/hosts", "pilots.list_hosts", "Hosts and what they did.", "HostsPage", query=(_LIMIT,)),
    Route("POST", "/v1/pilots/drain", "pilots.drain", "Ask pilots to end.", "Drained", scope="cancel", rule="targets",
          body=requests.DrainRequest, acts=True),
    Route("POST", "/v1/pilots", "pilots.enrol", "A pilot registers.", "Registered", kinds=(SESSION, ENROL), scope="",
          rule="pilot", body=Register, acts=True),
    Route("POST", "/v1/pilots/{pilot}/exchange", "pilots.exchange", "A pilot's exchange.", "Reply", kinds=(SESSION,),
          scope="", rule="pilot", body=Exchange),
    Route("POST", "/v1/pilots/{pilot}/bundle", "bundles.bundle", "Exchanges of followers, from the leader of their mesh.",
          "BundleReply", kinds=(SESSION,), scope="", rule="pilot", body=Bundle),
    Route("GET", "/v1/pilot.pyz", "pilots.zip", "The pilot itself.", "", kinds=_ALL, scope="", rule="caller",
          text="application/zip"),
    Route("GET", "/v1/acct", "acct.read", "Core time and tasks, summed by owner, site, host, pilot, run or day.", "AcctAnswer",
          query=(Query("by", str, "owner"), Query("since", int, 0), Query("until", int, None))),
    # --- people and tokens
    Route("GET", "/v1/whoami", "people.whoami", "Who the caller is.", "WhoAnswer", scope="", rule="caller"),
    Route("GET", "/v1/users", "people.users", "People the caller may see.", "UsersPage"),
    Route("POST", "/v1/users", "people.add_user", "Add or change a person.", "UserAnswer", scope="admin", rule="admin",
          body=requests.NewUser, acts=True),
    Route("GET", "/v1/groups", "people.groups", "Groups the caller may see.", "GroupsPage"),
    Route("POST", "/v1/groups", "people.add_group", "Add a group.", "GroupAnswer", scope="admin", rule="admin",
          body=requests.NewGroup, acts=True),
    Route("GET", "/v1/sites", "people.sites", "Sites whose names the caller may use.", "SitesPage"),
    Route("POST", "/v1/sites", "people.share_site", "Say whose the name of a site is.", "SiteAnswer", scope="admin",
          rule="admin", body=requests.SiteHolders, acts=True),
    Route("GET", "/v1/sites/weather", "sites.weather", "How the caller's sites do, and are expected to do.",
          "WeatherAnswer", scope="submit", rule="caller"),
    Route("GET", "/v1/demand", "sites.demand", "What the caller's ready tasks need, and the caller's pilots.",
          "DemandAnswer", scope="submit", rule="caller"),
    Route("POST", "/v1/sites/report", "sites.report", "What happens at a site, from its provisioner.", "Ok",
          scope="submit", rule="caller", body=requests.SiteStatus, acts=True),
    Route("GET", "/v1/tokens", "people.tokens", "Tokens without their secrets.", "TokensPage",
          query=(Query("all", int, 0, 0, 1), _LIMIT)),
    Route("POST", "/v1/tokens", "people.new_token", "A new token, shown once.", "TokenMade", scope="submit",
          rule="caller", body=requests.NewToken, acts=True),
    Route("POST", "/v1/tokens/revoke", "people.revoke", "End tokens and the pilots they let in.", "Revoked",
          scope="submit", rule="targets", body=requests.Revoke, acts=True),
    Route("GET", "/v1/audit", "people.audit", "Who did what, newest first.", "AuditPage", scope="admin", rule="admin",
          query=(_LIMIT, Query("before", int, None), Query("token"), Query("owner"))),
    # --- the policy
    Route("GET", "/v1/policy", "policy.read", "The policy as far as it concerns the caller, and the use of its limits.",
          "PolicyAnswer"),
    Route("POST", "/v1/policy", "policy.change", "Another policy, or what it would change.", "PolicyChanged",
          scope="admin", rule="admin", body=requests.PolicyBody, acts=True),
    Route("GET", "/v1/shares", "policy.shares", "What is due to those whom the caller may see, and what they use.",
          "SharesPage"),
    Route("POST", "/v1/policy/shares", "policy.change_shares", "Other shares, inside one's group.", "PolicyChanged",
          scope="submit", rule="targets", body=requests.SharesBody, acts=True),
    # --- the server
    Route("GET", "/v1/server", "server.server", "What this server is and does.", "ServerAnswer", rule="listing"),
    Route("POST", "/v1/server/stop", "server.stop", "End this server.", "Stopping", scope="admin", rule="admin",
          body=requests.Nothing, acts=True),
    Route("POST", "/v1/server/tunnel", "server.tunnel", "Serve TLS on a Unix socket, too, for tunnels to other hosts.",
          "TunnelAnswer", scope="admin", rule="admin", body=requests.Nothing, acts=True),
    Route("POST", "/v1/prune", "server.prune", "Delete old events and logs.", "PruneAnswer", scope="admin",
          rule="admin", body=requests.PruneRequest, acts=True),
    Route("GET", "/metrics", "server.metrics", "For Prometheus.", "", scope="metrics", rule="caller",
          text="text/plain"),
    Route("GET", "/v1/openapi.json", "server.openapi", "This interface for programs.", "Row", kinds=_ALL, scope="",
          rule="caller"),
    Route("GET", "/v1/ca", "server.ca", "The server's CA certificate.", "", kinds=(), scope="", rule="public",
          text="application/x-pem-file"),
    Route("GET", "/", "server.greet", "What this is, for a person with a browser.", "", kinds=(), scope="", rule="public",
          text="text/plain"),
    Route("GET", "/v1/health", "server.health", "Is someone there?", "Ok", kinds=(), scope="", rule="public"),
)  # fmt: skip

MAX_TEXT = MAX_NAME * 4  # of a query parameter
