"""What is told of a person's sites while they wait for a run: what its first tasks taught, and what goes wrong there.

The server says it in fields (`GET /v1/runs/{run}/machines`); here it becomes sentences, each told once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from shoal.cli.output.tables import clean
from shoal.client.client import Client
from shoal.model.quantities import many, show_duration, show_size
from shoal.wire.http.run_counts import done_of

BIG = 100  # tasks of a bag, beyond which its first ones are its scouts
SCOUTS = 20  # that are waited for at most
SHAPE_WITHIN = 15.0  # seconds after the scouts in which a site asks for pilots that are made for what they showed

Json = Mapping[str, Any]


class MachineNotes:
    """The notes of one run."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._scouts: dict[str, int] = {}  # the most tasks that ran at each site before the first came back
        self._first: float | None = None  # when the first task succeeded, by the server's clock
        self._is_first_told = self._is_shape_told = False
        self._in_at: float | None = None  # when enough scouts were back
        self._told: set[tuple[str, str]] = set()  # of which site what went wrong

    def take(self, event: Json) -> None:
        """Look at an event of the run."""
        is_success = event["kind"] == "task_finished" and event["data"].get("state") == "succeeded"
        if self._first is None and is_success and event.get("time"):
            self._first = float(event["time"])

    def look(self, client: Client, row: Json) -> None:
        """Tell what is new of the sites; of a big bag also what its scouts showed."""
        found = client.machines(row["run"])
        for site in found["sites"]:
            self._tell_trouble(site)
        if row["total"] > BIG and not self._is_shape_told:
            self._tell_scouts(found, row)

    def _tell_trouble(self, site: Json) -> None:
        """The first pilots that fail are no secret of a log file."""
        for what, prefix in (("trouble", f"no pilot comes from {site['site']}"), ("failure", str(site["site"]))):
            text = site[what]
            if text and (site["site"], text) not in self._told:
                self._told.add((site["site"], text))
                fix = f" ({clean(site['fix'])})" if what == "trouble" and site["fix"] else ""
                self._say(f"shoal: {prefix}: {clean(text)}{fix}")

    def _tell_scouts(self, found: Json, row: Json) -> None:
        if not self._is_first_told:
            for site, count in found["running"].items():
                self._scouts[site] = max(count, self._scouts.get(site, 0))
        if self._first is None or found["learned"] is None:
            return
        if not self._is_first_told:
            self._is_first_told = True
            self._say(first_line(row["total"], self._scouts, self._first - row["created"]))
        if self._in_at is None and done_of(row) >= min(SCOUTS, max(1, sum(self._scouts.values()))):
            self._in_at = self._clock()
        shapes = {site["site"]: site["shape"] for site in found["sites"] if site["shape"] is not None}
        if self._in_at is not None and (shapes or self._clock() - self._in_at > SHAPE_WITHIN):
            self._is_shape_told = True
            self._say(second_line(found["learned"], shapes))


def first_line(total: int, scouts: Mapping[str, int], seconds: float) -> str:
    """How many tasks ran first, and where."""
    sites = sorted(scouts)
    where = " and ".join(filter(None, (", ".join(sites[:-1]), *sites[-1:])))
    who = f"{many(sum(scouts.values()), 'scout')} running on {clean(where)} ... " if sites else ""
    return f"  {total:,} tasks. {who}first result after {show_duration(max(0.0, seconds))}"


def second_line(learned: Json, shapes: Mapping[str, Json]) -> str:
    """What they took, and the pilots that are asked for with it."""
    took = f"  median {show_duration(learned['median'])}, p95 {show_duration(learned['p95'])}"
    took += f", {show_size(learned['memory'])}" if learned["memory"] else ""
    took += f", output {show_size(learned['output'])}" if learned["output"] else ""
    alike = {shape_text(shape) for shape in shapes.values()}
    if len(alike) == 1:
        return f"{took} -> pilots of {alike.pop()}"
    each = "; ".join(f"{clean(site)}: pilots of {shape_text(shape)}" for site, shape in sorted(shapes.items()))
    return f"{took} -> {each}" if each else took


def shape_text(shape: Json) -> str:
    """`16 cores x 4h00m x 12.6G`"""
    parts = [many(shape["cores"], "core"), show_duration(shape["seconds"])]
    parts += [show_size(shape["memory"])] if shape["memory"] else []
    parts += [many(shape["hosts"], "host")] if shape["hosts"] > 1 else []
    return " x ".join(parts)
