"""One scrape: the counters and facts as Prometheus reads them. Loaded when the first scrape comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal.server.metrics import BUCKETS, NAMES, Gauges, Metrics


class _Page(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """All of them."""
        return self._families


def page(metrics: Metrics, facts: Gauges) -> bytes:
    """The text of one scrape."""
    process = CollectorRegistry()
    ProcessCollector(registry=process)
    families = [*_counters(metrics, facts), *_gauges(metrics, facts), *process.collect()]
    for family in families:
        family.documentation = NAMES[family.name + ("_total" if family.type == "counter" else "")]
    return generate_latest(_Page(families))


def _counters(metrics: Metrics, facts: Gauges) -> Iterator[Metric]:
    requests = CounterMetricFamily("shoal_requests", "", labels=["route", "status"])
    for (route, status), count in list(metrics.requests.items()):
        requests.add_metric([route, status], count)
    yield requests
    yield _histogram(metrics)
    yield CounterMetricFamily("shoal_exchanges", "", value=metrics.exchanges)
    yield _labelled(CounterMetricFamily, "shoal_refused", "code", dict(metrics.refusals))
    yield CounterMetricFamily("shoal_commands_contained", "", value=facts.contained)
    yield _labelled(CounterMetricFamily, "shoal_tasks_finished", "state", facts.tasks_finished)
    yield CounterMetricFamily("shoal_commits", "", value=facts.commits)
    yield CounterMetricFamily("shoal_commit_wait_seconds", "", value=facts.commit_wait)
    yield CounterMetricFamily("shoal_events", "", value=facts.events)
    yield _labelled(CounterMetricFamily, "shoal_connections_cut", "why", facts.cut)


def _histogram(metrics: Metrics) -> Metric:
    family = HistogramMetricFamily("shoal_request_seconds", "", labels=["route"])
    for route, buckets in list(metrics.seconds.items()):
        counted, rows = 0.0, []
        for limit, count in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=False):  # the last is the sum
            counted += count
            rows.append((limit, counted))
        family.add_metric([route], rows, sum_value=buckets[-1])
    return family


def _gauges(metrics: Metrics, facts: Gauges) -> Iterator[Metric]:
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
    yield _labelled(GaugeMetricFamily, "shoal_pilots", "state", facts.pilots)
    yield _labelled(GaugeMetricFamily, "shoal_connections", "state", facts.connections)
    yield _labelled(GaugeMetricFamily, "shoal_server_info", "version", {metrics.version: 1})


def _labelled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, label: str, values: Mapping[str, int]
) -> Metric:
    family = kind(name, "", labels=[label])
    for said, value in values.items():
        family.add_metric([said], value)
    return family
