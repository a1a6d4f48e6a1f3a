"""Fields that say where, when and in which surroundings a task runs."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.model.errors import BadInput
from shoal.model.limits import MAX_CHECKPOINT, MAX_EXPR_BYTES, MAX_LICENCES, MAX_SETUP
from shoal.model.task.spec import Spec
from shoal.wire.task import parse_spec


def spec(**fields: Any) -> Spec:
    return parse_spec({"command": ["true"], **fields})


def refused(**fields: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        spec(**fields)
    return caught.value


def test_expressions_are_kept_as_they_are_written_but_for_blanks_around_them() -> None:
    made = spec(require=" memory_mb >= 4000 ", rank="cpu_mhz")
    assert (made.require, made.rank) == ("memory_mb >= 4000", "cpu_mhz")


def test_an_expression_of_a_megabyte_is_too_complex() -> None:
    error = refused(require="x" * (1 << 20))
    assert (error.code, error.field) == ("expression_too_complex", "require")
    assert spec(require="x" * MAX_EXPR_BYTES).require


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("2h", (7200.0, None)),
        (90, (90.0, None)),
        ("1970-01-02T00:00:00Z", (None, 86_400.0)),
        ("1970-01-02T00:00", (None, 86_400.0)),
        ("1970-01-02T01:00+01:00", (None, 86_400.0)),
    ],
)
def test_a_deadline_is_a_time_from_the_submission_on_or_a_moment(text: object, due: tuple[object, object]) -> None:
    made = spec(deadline=text)
    assert made.deadline == due


@pytest.mark.parametrize("text", ["2026-13-01T00:00", "T", "1234T", "1800-01-01T00:00", "soon", 0, -5, True])
def test_what_is_no_deadline_is_refused_with_examples(text: object) -> None:
    error = refused(deadline=text)
    assert (error.code, error.field) == ("bad_duration", "deadline")
    assert error.hint


def test_setup_is_a_list_of_lines_or_a_text_of_them() -> None:
    assert spec(setup=["module load gcc", "export X=1"]).setup == ("module load gcc", "export X=1")
    assert spec(setup="a\nb").setup == ("a", "b")
    assert refused(setup=[]).code == "wrong_type"
    assert refused(setup=[" "]).code == "empty_command"
    assert refused(setup=["x"] * (MAX_SETUP + 1)).code == "wrong_type"
    assert refused(setup=["a\0b"]).code == "nul_in_argument"


@pytest.mark.parametrize("image", ["debian:12", "docker://python:3.12", "/images/a.sif", "ghcr.io/x/y@sha256:ab12"])
def test_an_image_by_name_or_path(image: str) -> None:
    assert spec(container=image).container == image


@pytest.mark.parametrize("image", ["", "-v/:/x", "a b", "$(x)", "a;b", "../x", "a/../b", "é"])
def test_what_is_no_image_is_refused(image: str) -> None:
    assert refused(container=image).code == "bad_container"


def test_licences_are_names_with_numbers_or_names_alone() -> None:
    assert spec(licences={"b": 2, "a": 1}).needs.licences == (("a", 1), ("b", 2))
    assert spec(licences=["matlab"]).needs.licences == (("matlab", 1),)
    assert refused(licences={"a": 0}).code == "range"
    assert refused(licences={"a b": 1}).code == "bad_name"
    assert refused(licences={}).code == "wrong_type"
    assert refused(licences=[str(n) for n in range(MAX_LICENCES + 1)]).code == "wrong_type"


def test_checkpoint_files_lie_below_the_tasks_directory() -> None:
    assert spec(checkpoint=["a/state"]).checkpoint == ("a/state",)
    for name in ("../x", "/x", "a/", "-x", "."):
        assert refused(checkpoint=[name]).code == "bad_path"
    assert refused(checkpoint=["a", "a"]).code == "duplicate_output"
    assert refused(checkpoint=[str(n) for n in range(MAX_CHECKPOINT + 1)]).code == "wrong_type"


def test_a_task_that_is_never_run_again_has_no_checkpoint() -> None:
    assert refused(checkpoint=["a"], rerun="never").field == "checkpoint"


def test_an_order_names_a_parameter() -> None:
    assert spec(params={"x": "1..3"}, order="-x").order == "-x"
    assert refused(params={"energy": "1..3"}, order="enrgy").hint == "did you mean energy"
    assert "params" in refused(order="x").hint


@pytest.mark.parametrize("field", ["setup", "container", "checkpoint"])
def test_functions_have_no_surroundings(field: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_spec({"function": "gAU=", "calls": ["gAU="], field: ["x"] if field != "container" else "x"})
    assert caught.value.field == field
