"""What the guard is given of a piece is what each of its commands would be given alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shoal.pilot.commands.pieces import CommandPiece
from shoal.pilot.commands.staging import PilotFacts, Staging
from shoal.pilot.guard.messages import Ran, Start
from shoal.wire.batches import report_of
from shoal.wire.chunk import names, single
from shoal.wire.messages import Capacity, Lease

texts = st.sampled_from(["true", "a{x}", "{i}", "{{y}}", "-{x}{i}", "{x.stem}"])
values = st.one_of(st.integers(0, 9), st.sampled_from(["p q", "u/v.w", ""]))


def start_of(lease: Lease) -> Start:
    """The request that a single command makes."""
    staging = Staging(PilotFacts("/w", {"PATH": "/bin"}, server="unix:/s"))
    own = staging._own(lease, lease.cwd, ())
    return Start(lease.attempt, lease.command, lease.cwd, own, "", "", 1.0, 0)


@given(
    st.lists(texts, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["A", "PWD", "SHOAL_SEED", "SHOAL_TASK", "SHOAL_TASK_SERVER"]), texts, max_size=3),
    st.lists(st.fixed_dictionaries({"x": values, "i": values}), min_size=2, max_size=5),
    st.booleans(),
)
def test_each_has_the_arguments_and_the_environment_that_it_had_alone(
    command: list[str], env: dict[str, str], params: list[dict[str, object]], has_params: bool
) -> None:
    lease = Lease(
        "r3.998#2@7~0123456789abcdef", Capacity(1), "safe", command, cwd="/", env=env, count=len(params), seed=5
    )
    lease = replace(lease, params=params) if has_params else lease  # type: ignore[arg-type]  # of the values above
    sent = CommandPiece(lease, "/logs").start(start_of(single(lease)))
    first = Start(*sent.start)
    for at in range(lease.count):
        alone = start_of(single(lease, at))
        assert {**first.env, **sent.envs[at]} == alone.env
        assert (sent.argvs[at] if sent.argvs else first.argv) == alone.argv


def test_what_ran_is_one_batch_and_the_rest_is_left() -> None:
    lease = Lease("r3.9#2@7", Capacity(1), "safe", ["true"], cwd="/", count=5, seed=5)
    piece = CommandPiece(lease, "/logs")
    batch = piece.take(Ran(piece.name, [1.0, 2.0], [0.1, 0.2], [0.0, 0.0], [7, 8]))
    assert batch is not None and names(batch) == ["r3.9#2@7", "r3.10#2@7"]
    assert report_of(batch, 1).exit_code == 0 and report_of(batch, 1).max_rss == 8
    assert piece.take_one().attempt == "r3.11#2@7" and piece.left == ["r3.12#2@7", "r3.13#2@7"]
    assert piece.has("r3.12#2@7") and not piece.has("r3.11#2@7") and not piece.has("r3.12#3@7")
    assert piece.take(Ran(piece.name, [], [], [], [], over=True)) is None
