"""How a person's sites stand: their settings, what was used of them, and what the server and the provisioner know now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.cli.output.describe import moment
from shoal.cli.output.tables import clean
from shoal.cli.session import Session
from shoal.model.quantities import many, show_duration, show_size
from shoal.provisioner.ledger import Ledger
from shoal.provisioner.site_file import SiteConfig, SiteFile

CORE_HOUR = 3600.0

Row = dict[str, Any]


def site_rows(session: Session, file: SiteFile, configs: Sequence[SiteConfig]) -> list[Row]:
    """Sites with what is known of them now; without a running server, with what is on disk."""
    demand: Mapping[str, Any] = {"pilots": [], "sites": []}
    client = session.running() if configs else None
    if client is not None:
        with client:
            demand = client.demand()
    return [_row(file, config, demand) for config in configs]


def _row(file: SiteFile, config: SiteConfig, demand: Mapping[str, Any]) -> Row:
    pilots = [one for one in demand["pilots"] if one["site"] == config.name]
    status = next((one for one in demand["sites"] if one["site"] == config.name), None)
    ledger = Ledger(file.ledger(config.name))
    left = None if config.budget is None else max(0.0, config.budget - ledger.committed) / CORE_HOUR
    return {
        "name": config.name, "url": config.url, "state": _state(config, status, ledger), "pilots": len(pilots),
        "cores": sum(one["cores"] for one in pilots), "queued": status["queued"] if status is not None else 0,
        "options": config.options, "storage": config.storage, "directory": config.directory, "pilot_cores": config.cores,
        "pilot_memory": config.memory, "hosts": config.hosts, "max_pilots": config.max_pilots,
        "min_pilots": config.min_pilots, "max_queued": config.max_queued, "max_seconds": config.max_seconds,
        "budget_core_hours": None if config.budget is None else config.budget / CORE_HOUR,
        "used_core_hours": ledger.used / CORE_HOUR, "reserved_core_hours": (ledger.committed - ledger.used) / CORE_HOUR,
        "left_core_hours": left, "median_wait": ledger.wait, "waits": len(ledger.waits),
        "errors": [{"time": at, "text": text} for at, text in reversed(ledger.errors)],
    }  # fmt: skip


def _state(config: SiteConfig, status: Mapping[str, Any] | None, ledger: Ledger) -> str:
    """The first thing that matters about a site, as a phrase."""
    now = time.time()
    if config.removed:
        return "being removed"
    if now < config.banned_until:
        reason = f": {config.ban_reason}" if config.ban_reason else ""
        return f"banned for {show_duration(config.banned_until - now)}{reason}"
    if status is not None and status["trouble"]:
        return f"trouble: {status['trouble']}"
    if config.budget is not None and config.budget - ledger.committed < config.hosts * config.min_seconds:
        return "budget used up" if ledger.used >= ledger.committed else "all of its budget is used or reserved"
    if status is not None and status["queued"]:
        return waits_text(status)
    if status is not None and status["failure"]:
        return str(status["failure"])
    return "ok"


def waits_text(status: Mapping[str, Any]) -> str:
    """How many allocations wait in a batch system, and why; empty if none does."""
    why = f": {clean('; '.join(status['reasons']))}" if status["reasons"] else ""
    return (
        f"{many(status['queued'], 'allocation')} in the queue of {status['backend']}{why}" if status["queued"] else ""
    )


def hours(value: float | None) -> str:
    """Core hours in a table; None: there is no such bound."""
    return "-" if value is None else f"{value:.2f}"


def describe_site(row: Row) -> Iterator[tuple[str, object]]:
    """Everything about one site, for `shoal site show`."""
    yield "site", row["name"]
    yield "url", clean(row["url"])
    yield "state", clean(row["state"])
    yield "pilots", f"{row['pilots']} with {many(row['cores'], 'core')}; {row['queued']} wait"
    memory = {None: "memory by what tasks take", 0: "the memory that the site gives"}
    of = memory[row["pilot_memory"]] if row["pilot_memory"] in memory else show_size(row["pilot_memory"])
    yield "one pilot", f"{many(row['pilot_cores'], 'core')}, {of}, at most {show_duration(row['max_seconds'])}"
    if row["hosts"] > 1:
        yield "one allocation", f"{row['hosts']} hosts, with a pilot on each"
    yield "at most", f"{many(row['max_pilots'], 'pilot')}, {row['max_queued']} in the queue"
    if row["min_pilots"]:
        yield "at least", many(row["min_pilots"], "pilot")
    used = f"{row['used_core_hours']:.2f} used, {row['reserved_core_hours']:.2f} reserved"
    budget = row["budget_core_hours"]
    yield "core hours", used + (f", {row['left_core_hours']:.2f} left of {budget:g}" if budget is not None else "")
    wait = row["median_wait"]
    yield "wait in queue", "not known yet" if wait is None else f"{show_duration(wait)} (median of {row['waits']})"
    yield "options", clean(" ".join(f"{name}={value}" for name, value in row["options"].items())) or "-"
    if row["storage"]:
        yield "storage", clean("  ".join(row["storage"]))
    yield "directory", clean(row["directory"])
    for error in row["errors"]:
        yield "error", f"{moment(error['time'])}: {clean(error['text'])}"
