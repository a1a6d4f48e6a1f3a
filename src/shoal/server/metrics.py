"""Metrics for Prometheus: one table of names, counters that requests increment, gauges from `Gauges`.

No label names an owner, a pilot or a path: each series costs every scrape, and their number must be bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import accumulate

from shoal.model.lazy_dataclass import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)  # seconds: a lookup, a commit, a list, a bulk, a lag, a parked exchange

# docs/reference/metrics.md is generated from this table.
NAMES: dict[str, str] = {
    "shoal_requests_total": "Requests answered, by pattern of the route and HTTP status.",
    "shoal_request_seconds": "Seconds from a request's headers to its answer, by pattern of the route; waiting counts.",
    "shoal_exchanges_total": "Exchanges with pilots answered.",
    "shoal_bundled_exchanges_total": "Exchanges that came by way of a leader, many in one request.",
    "shoal_refused_total": "Requests refused, by code of the error.",
    "shoal_commands_contained_total": "Commands that met a defect: undone, and the engine rebuilt from the database.",
    "shoal_senders_locked_out": "Senders whose requests are refused for a while because they met defects repeatedly.",
    "shoal_tasks_finished_total": "Tasks that reached a final state since the server started, by state.",
    "shoal_tasks_live": "Tasks that are with pilots now.",
    "shoal_tasks_ready": "Tasks that wait for a pilot.",
    "shoal_runs_open": "Runs with tasks that are not final.",
    "shoal_pilots": "Pilots, by state.",
    "shoal_slots": "Cores of all living pilots.",
    "shoal_slots_free": "Cores of living pilots that no task uses.",
    "shoal_commits_total": "Commits to the database since the server started.",
    "shoal_commit_wait_seconds_total": "Seconds that answers waited for the commit of what they say, added up.",
    "shoal_report_commit_wait_seconds_total": "Those of answers to pilots among them.",
    "shoal_events_total": "Events written to the journal since the server started.",
    "shoal_connections": "Connections now, by state: open are all, unknown those that showed no good token yet.",
    "shoal_connections_cut_total": "Connections that the server ended, by reason: refused over a limit, or slow.",
    "shoal_loop_lag_seconds": "How late the event loop is: above 0.1 people's requests are put off.",
    "shoal_server_info": "Always 1; the label says the version.",
    "process_virtual_memory_bytes": "Virtual memory of the server process.",
    "process_resident_memory_bytes": "Memory of the server process that is in RAM.",
    "process_start_time_seconds": "When the server process started, in seconds since 1970.",
    "process_cpu_seconds_total": "Processor time that the server process used.",
    "process_open_fds": "Files and sockets that the server process has open.",
    "process_max_fds": "Files and sockets that the server process may open.",
}


@dataclass(frozen=True)
class Gauges:
    """The state of the server at one moment; collected on the event loop, right before rendering."""

    tasks_finished: Mapping[str, int] = field(default_factory=dict)  # final state -> how many since the start
    tasks_live: int = 0
    tasks_ready: int = 0
    runs_open: int = 0
    pilots: Mapping[str, int] = field(default_factory=dict)  # state -> how many
    slots: int = 0
    slots_free: int = 0
    commits: int = 0  # since the start
    commit_wait: float = 0.0  # seconds that answers waited for commits, since the start
    report_wait: float = 0.0  # those of answers to pilots among them
    events: int = 0  # since the start
    connections: Mapping[str, int] = field(default_factory=dict)  # open, unknown -> how many
    cut: Mapping[str, int] = field(default_factory=dict)  # refused, slow -> how many since the start
    loop_lag: float = 0.0
    contained: int = 0  # commands that met a defect since the start
    locked_out: int = 0


class Metrics:
    """The counters of one server, as plain numbers: the library is loaded by the first scrape only."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.requests: dict[tuple[str, str], int] = {}  # route, status
        self.seconds: dict[str, list[float]] = {}  # route -> how many in each bucket, in none of them, and the sum
        self.refusals: dict[str, int] = {}  # code
        self.exchanges = 0
        self.bundled = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is the pattern, never the path."""
        key = (route, str(status))
        self.requests[key] = self.requests.get(key, 0) + 1
        buckets = self.seconds.setdefault(route, [0.0] * (len(BUCKETS) + 2))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        buckets[-1] += seconds

    def refused(self, code: str) -> None:
        """A request was refused."""
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def render(self, facts: Gauges) -> bytes:
        """The text of one scrape; safe on any thread."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
        from prometheus_client.registry import Collector

        def labelled(
            kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, label: str, values: Mapping[str, int]
        ) -> Metric:
            family = kind(name, "", labels=[label])
            for text, value in values.items():
                family.add_metric([text], value)
            return family

        def families() -> Iterator[Metric]:
            requests = CounterMetricFamily("shoal_requests", "", labels=["route", "status"])
            for (route, status), count in list(self.requests.items()):
                requests.add_metric([route, status], count)
            yield requests
            seconds = HistogramMetricFamily("shoal_request_seconds", "", labels=["route"])
            for route, buckets in list(self.seconds.items()):
                limits = zip((*map(str, BUCKETS), "+Inf"), accumulate(buckets[:-1]), strict=True)
                seconds.add_metric([route], list(limits), sum_value=buckets[-1])
            yield seconds
            for name, value in {
                "shoal_exchanges": self.exchanges,
                "shoal_bundled_exchanges": self.bundled,
                "shoal_commands_contained": facts.contained,
                "shoal_commits": facts.commits,
                "shoal_commit_wait_seconds": facts.commit_wait,
                "shoal_report_commit_wait_seconds": facts.report_wait,
                "shoal_events": facts.events,
            }.items():
                yield CounterMetricFamily(name, "", value=value)
            yield labelled(CounterMetricFamily, "shoal_refused", "code", dict(self.refusals))
            yield labelled(CounterMetricFamily, "shoal_tasks_finished", "state", facts.tasks_finished)
            yield labelled(CounterMetricFamily, "shoal_connections_cut", "why", facts.cut)
            for name, value in {
                "shoal_tasks_live": facts.tasks_live,
                "shoal_tasks_ready": facts.tasks_ready,
                "shoal_runs_open": facts.runs_open,
                "shoal_slots": facts.slots,
                "shoal_slots_free": facts.slots_free,
                "shoal_loop_lag_seconds": facts.loop_lag,
                "shoal_senders_locked_out": facts.locked_out,
            }.items():
                yield GaugeMetricFamily(name, "", value=value)
            yield labelled(GaugeMetricFamily, "shoal_pilots", "state", facts.pilots)
            yield labelled(GaugeMetricFamily, "shoal_connections", "state", facts.connections)
            yield labelled(GaugeMetricFamily, "shoal_server_info", "version", {self.version: 1})
            process = CollectorRegistry()
            ProcessCollector(registry=process)
            yield from process.collect()

        class Scrape(Collector):
            def collect(self) -> Iterator[Metric]:
                for family in families():
                    family.documentation = NAMES[family.name + ("_total" if family.type == "counter" else "")]
                    yield family

        return generate_latest(Scrape())
