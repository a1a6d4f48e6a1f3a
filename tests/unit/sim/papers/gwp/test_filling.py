"""g.filling, on a fraction of its tasks."""

from __future__ import annotations

from shoal.sim.papers.experiment import Inputs
from shoal.sim.papers.gwp.filling import EXPERIMENT, VARIED, best_of, measure
from shoal.sim.papers.gwp.simulate import smaller
from shoal.sim.papers.gwp.workload import DIANE, GWPILOT, SYSTEMS, TABLE_6


def test_a_small_run_fills_every_row_of_its_tests() -> None:
    settings = {**smaller(EXPERIMENT.settings, 100), "dirac_command_task": 2.0}
    found = measure(Inputs(1, settings))
    assert len(found.data) == len(VARIED) * len(SYSTEMS)
    keys = {claim.key for claim in EXPERIMENT.claims}
    wanted = {key for key in keys if key.split(".")[1] in VARIED and not key.startswith("engine")}
    assert wanted <= set(found.values)
    assert all(0.0 < found.values[key] <= 100.0 for key in wanted if key.startswith("filling"))
    assert found == measure(Inputs(1, settings))


def test_every_cell_of_table_6_has_its_rows() -> None:
    keys = {claim.key for claim in EXPERIMENT.claims}
    for test, system in TABLE_6:
        assert {f"makespan.{test}.{system}", f"filling.{test}.{system}", f"up.{test}.{system}"} <= keys
    assert [best_of(test) for test in "abcdef"] == [GWPILOT] * 5 + [DIANE]
