"""What Prometheus reads: every name is in the table, every number arrives, and nothing is shared between servers."""

from __future__ import annotations

import threading

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from shoal.server.metrics import BUCKETS, NAMES, Gauges, Metrics

FACTS = Gauges(
    tasks_finished={"succeeded": 1000, "failed": 2},
    tasks_live=3,
    tasks_ready=5,
    runs_open=2,
    pilots={"busy": 4, "idle": 1},
    slots=40,
    slots_free=8,
    commits=17,
    events=99,
    connections={"open": 7, "unknown": 2},
    cut={"refused": 1, "slow": 0},
    loop_lag=0.125,
)


def read(metrics: Metrics, facts: Gauges = FACTS) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    families = text_string_to_metric_families(metrics.render(facts).decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def busy() -> Metrics:
    metrics = Metrics("0.1.0")
    metrics.answered("/v1/runs/{run}", 200, 0.05)
    metrics.answered("/v1/runs/{run}", 200, 3.0)
    metrics.answered("/v1/runs", 429, 0.001)
    metrics.exchanges += 10
    metrics.refused("too_many")
    return metrics


def test_counters_arrive() -> None:
    found = read(busy())
    assert found["shoal_requests_total", "/v1/runs/{run}", "200"] == 2
    assert found["shoal_requests_total", "/v1/runs", "429"] == 1
    assert found["shoal_exchanges_total",] == 10
    assert found["shoal_refused_total", "too_many"] == 1


def test_histogram_is_coarse_and_counts_seconds() -> None:
    found = read(busy())
    assert found["shoal_request_seconds_count", "/v1/runs/{run}"] == 2
    assert found["shoal_request_seconds_sum", "/v1/runs/{run}"] == 3.05
    assert found["shoal_request_seconds_bucket", "0.1", "/v1/runs/{run}"] == 1
    assert len([key for key in found if key[::2] == ("shoal_request_seconds_bucket", "/v1/runs")]) == len(BUCKETS) + 1


def test_gauges_are_those_of_the_facts() -> None:
    found = read(Metrics("0.1.0"))
    assert found["shoal_tasks_finished_total", "succeeded"] == 1000
    assert found["shoal_tasks_live",] == 3
    assert found["shoal_tasks_ready",] == 5
    assert found["shoal_runs_open",] == 2
    assert found["shoal_pilots", "busy"] == 4
    assert (found["shoal_slots",], found["shoal_slots_free",]) == (40, 8)
    assert (found["shoal_commits_total",], found["shoal_events_total",]) == (17, 99)
    assert found["shoal_connections", "unknown"] == 2
    assert found["shoal_connections_cut_total", "refused"] == 1
    assert found["shoal_loop_lag_seconds",] == 0.125
    assert found["shoal_server_info", "0.1.0"] == 1
    assert found["process_resident_memory_bytes",] > 1_000_000


def test_state_that_no_pilot_has_any_more_disappears() -> None:
    metrics = Metrics("0.1.0")
    assert ("shoal_pilots", "busy") in read(metrics)
    assert ("shoal_pilots", "busy") not in read(metrics, Gauges(pilots={"idle": 5}))


def test_every_family_is_in_the_table_and_the_table_has_no_other() -> None:
    families = text_string_to_metric_families(busy().render(FACTS).decode())
    written = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    assert written == set(NAMES)


def test_every_sentence_of_the_table_is_one_and_is_the_help_that_is_written() -> None:
    families = text_string_to_metric_families(busy().render(FACTS).decode())
    said = {f.name + ("_total" if f.type == "counter" else ""): f.documentation for f in families}
    assert said == NAMES
    assert all(text.endswith(".") and "\n" not in text for text in NAMES.values())


def test_series_have_no_created_twin() -> None:
    assert b"_created" not in busy().render(FACTS)


def test_two_servers_in_one_process_share_nothing() -> None:
    before = {family.name for family in REGISTRY.collect()}
    busy()
    assert ("shoal_exchanges_total",) in read(Metrics("0.1.0"))
    assert read(Metrics("0.1.0"))["shoal_exchanges_total",] == 0
    assert {family.name for family in REGISTRY.collect()} == before


def test_rendering_on_a_thread_while_requests_come_loses_nothing() -> None:
    metrics = Metrics("0.1.0")
    pages: list[bytes] = []
    thread = threading.Thread(target=lambda: pages.extend(metrics.render(FACTS) for _ in range(30)))
    thread.start()
    for number in range(3000):
        metrics.answered(f"/v1/{number % 50}", 200, 0.01)
    thread.join()
    assert len(pages) == 30
    found = read(metrics)
    assert sum(value for key, value in found.items() if key[0] == "shoal_requests_total") == 3000
