from __future__ import annotations

from shoal.server.submission.check_outputs import MAX_WARNINGS, output_warnings
from shoal.wire.task import parse_spec


def test_twins_of_other_case_or_composition_are_warned_of_and_kept() -> None:
    """[input E48]."""
    spec = parse_spec({"command": ["true"], "outputs": ["out", "Out", "caf\u00e9", "cafe\u0301", "other"]})
    assert spec.outputs == ("out", "Out", "caf\u00e9", "cafe\u0301", "other")
    first, second = output_warnings([spec])
    assert "out and Out" in first and "caf" in second
    assert len(output_warnings([spec] * 10)) == MAX_WARNINGS
    assert output_warnings([parse_spec({"command": ["true"], "outputs": ["a", "b"]})]) == []
