"""What the experiments on the three architectures share: sizes, parameters, and runs that are remembered, so that the
experiments of one command, and their variations, run each case once [LBO IV]."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from shoal.sim.papers.experiment import Inputs, Parameter, Source
from shoal.sim.papers.lbo.overlay import CENTRAL, DISTRIBUTED, TRACKED, Outcome, Overlay
from shoal.sim.planning.workloads import MERGING, SERIAL, SPLITTING

ARCHITECTURES = (TRACKED, CENTRAL, DISTRIBUTED)
KINDS = (SERIAL, SPLITTING, MERGING)


class Size(NamedTuple):
    """Pilots and tasks of a test."""

    pilots: int
    tasks: int


SIZES = {"300": Size(100, 300), "1.5k": Size(500, 1_500), "5k": Size(1_500, 5_000), "10k": Size(1_500, 10_000)}
SMALL, MEDIUM, LARGE = "300", "1.5k", ("5k", "10k")
VARIED = (SMALL, MEDIUM)  # sizes that are run when a parameter is varied

# Each fitted to one cell: the first in d.timeline, the second in d.delay, the others in d.requests. Elsewhere they are taken as
# they are.
SCAN_S, BETWEEN_S, NOTICES, BEAT_S = 7.7e-5, 4.9, 2, 300.0

WORLD = (
    Parameter("task_s", 198.0, Source.PAPER, "IV.A: the average job lasts 3.3 minutes"),
    Parameter("list_s", 20.0, Source.PAPER, "IV.A: between two TaskList messages of a master"),
    Parameter("file_mb", 700, Source.PAPER, "CMS V, whose workflows these are"),
    Parameter("cache_mb", 10_000, Source.PAPER, "CMS IV.C: the space of a pilot"),
    Parameter("waits", True, Source.PAPER, "CMS IV.E: waitForData, in tracked and central"),
    Parameter("peers", True, Source.PAPER, "III.A: pilots find files of others by their table, in central and distributed"),
    Parameter("ranks", True, Source.PAPER, "III.C: pilots rank tasks by the files that they have, in distributed"),
    Parameter("host_slots", 2, Source.CHOSEN, "pilots on a host, which share its disk: as fitted in c.hit-ratio"),
    Parameter("reserve_mb", 1_000, Source.CHOSEN, "of the space for the job that runs; not printed"),
    Parameter("task_spread", 0.2, Source.CHOSEN, "standard deviation over the mean of a task; not printed"),
    Parameter("create_s", 5.0, Source.CHOSEN, "from the end of a task to those that read its file being queued; not printed"),
    Parameter("pull_s", 60.0, Source.CHOSEN, "between two requests of a pilot that gets nothing; not printed"),
    Parameter("request_s", 0.005, Source.CHOSEN, "of the server for a request that is not matched; not printed"),
    Parameter("publish_s", 1.0, Source.CHOSEN, "until other pilots find a new file by their table; not printed"),
    Parameter("bids", 16, Source.CHOSEN, "tasks of which a pilot tells its rank in a round; the paper's tell all"),
    Parameter("gather_s", 0.02, Source.CHOSEN,
              "until all answers are with the master: dht/spread over 50 to 750 peers, in sim/broadcasts", varied=False),
    Parameter("sample_s", 10.0, Source.CHOSEN, "between two points of the timeline", varied=False),
)  # fmt: skip
SCAN_AS_FITTED = Parameter(
    "scan_s", SCAN_S, Source.CHOSEN, "of the server for each task that it looks at, as fitted in d.timeline"
)
BETWEEN_AS_FITTED = Parameter(
    "between_s", BETWEEN_S, Source.CHOSEN, "a pilot's own time after a task, as fitted in d.delay"
)
MESSAGES_AS_FITTED = (
    Parameter("notices", NOTICES, Source.CHOSEN, "further messages on each task, as fitted in d.requests"),
    Parameter("beat_s", BEAT_S, Source.CHOSEN, "between two heart-beats, as fitted in d.requests"),
)

OF_MODEL = (*(one.name for one in WORLD), "scan_s", "between_s", "notices", "beat_s")

MODELLED = (
    "A model of the paper's task queue, pilots, masters and caches, with two equal sites. Who waits for data (`sched/hold.py`), "
    "what a cache keeps (`data/catalogue.py`) and the rounds of a master (`sched/leader/bids.py`) are the product's own code. "
    "Requests are counted when they arrive, reads when a task begins."
)


def outcome(settings: Mapping[str, Any], architecture: str, kind: str, size: str, seed: int) -> Outcome:
    """Run a case, once in a process."""
    return _run(tuple((name, settings[name]) for name in OF_MODEL), architecture, kind, size, seed)


@lru_cache(maxsize=1_024)
def _run(settings: tuple[tuple[str, Any], ...], architecture: str, kind: str, size: str, seed: int) -> Outcome:
    return Overlay(dict(settings), architecture, kind, *SIZES[size], f"{seed}/{kind}/{size}").run()


def sizes_of(inputs: Inputs) -> tuple[str, ...]:
    """The sizes of a measurement: all of a whole one."""
    return tuple(SIZES) if inputs.engine else VARIED
