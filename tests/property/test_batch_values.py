"""No hostile value gets into a batch script as anything but itself [security S10] [input E82]."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.errors import BadInput
from shoal.provision import batch_script, batch_values, registry
from shoal.provision.backend import Order, Shape

BACKENDS = ("slurm", "sge", "pbs", "lsf", "htcondor", "kubernetes")
NEEDED = {"kubernetes": {"image": "python:3.12"}}
START = ("python3", "pilot.pyz")
BITS = (
    *(
        "; touch HIT",
        "\ntouch HIT\n",
        "$(touch HIT)",
        "`touch HIT`",
        "| touch HIT",
        "&& touch HIT",
        "' ; touch HIT ; '",
    ),
    *(
        '" ; touch HIT ; "',
        "\\\ntouch HIT",
        "\r\ntouch HIT",
        "${x:=$(touch HIT)}",
        "> HIT",
        "\n#SBATCH --wrap=x",
        "$((x[$(touch HIT)]))",
    ),
    *(
        "\nSHOAL_END\ntouch HIT\n",
        "\nEOF\ntouch HIT\n",
        "\u2028touch HIT",
        "\x1b]0;x\x07",
        "%j",
        "!!",
        "~root",
        "*",
        " -x",
        "\\",
        "'",
        '"',
    ),
)
AROUND = ("", "a", "short", "--", "-o", "1", "gpu:", "/x/")
HOSTILE = [f"{before}{bit}{after}" for bit in BITS for before in AROUND for after in ("", "b", "\n", "'", '"', ")")][
    :1_200
]


def order(
    start: tuple[str, ...], options: Mapping[str, str], directory: str = "/data/shoal/site", hosts: int = 1
) -> Order:
    return Order("shoal-k3f9a2-1", Shape(2, 600, hosts, 2**30, 1), directory, start, options)


def is_tame(value: str) -> bool:
    """True if no batch system and no shell reads it as more than a word, in a comment or out of it."""
    return (
        value.isascii()
        and value.isprintable()
        and not set(value) & set(" \"'\\`$;<>~#%{}?^")
        and not value.startswith("-")
    )


def test_there_are_a_thousand_hostile_values() -> None:
    assert len(set(HOSTILE)) >= 1_000


@pytest.mark.parametrize("name", BACKENDS)
def test_no_option_carries_a_hostile_value(name: str) -> None:
    backend = registry.make(name, NEEDED.get(name, {}))
    made = 0
    for number, value in enumerate(HOSTILE):
        option = sorted(backend.options)[number % len(backend.options)]
        wanted = order(START, {**NEEDED.get(name, {}), option: value})
        try:
            backend.script(wanted)
            text = backend.submit(wanted, "/data/shoal/x.sh")
        except BadInput as error:
            assert error.code == "bad_batch_value" and error.field and error.hint
        else:
            assert is_tame(value), (option, value, text)
            made += 1
    assert made < len(HOSTILE) // 4


@pytest.mark.parametrize("name", [*BACKENDS, "local"])
def test_names_and_directories_are_checked_too(name: str) -> None:
    backend = registry.make(name, NEEDED.get(name, {}))
    for value in HOSTILE[::7]:
        for bad in (
            Order(f"shoal{value}", Shape(1, 60), "/data/shoal/site", START, {}),
            Order("shoal-k3f9a2-1", Shape(1, 60), f"/data/shoal/{value}", START, {}),
        ):
            try:
                backend.script(bad)
            except BadInput:
                continue
            assert is_tame(bad.name) and is_tame(bad.directory)


@pytest.mark.parametrize("is_launched", [False, True])
def test_hostile_arguments_arrive_as_they_are_and_run_nothing(tmp_path: Path, is_launched: bool) -> None:
    """The script is really run; each value must come out whole, and no file HIT may appear."""
    wanted = order(("printf", r"%s\0", *HOSTILE), {}, str(tmp_path))
    launch = batch_script.start_here(wanted)
    if is_launched:
        launch = batch_script.start_on_hosts(wanted, ['/bin/sh "$file" "$SHOAL_ALLOCATION_ENDS"'])
    script = tmp_path / "x.sh"
    script.write_text(batch_script.script(wanted, (), launch), newline="")
    subprocess.run(["sh", "-n", str(script)], check=True, timeout=60)
    done = subprocess.run(["sh", str(script)], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert [os.fsdecode(one) for one in done.stdout.split(b"\0")[:-1]] == HOSTILE
    assert [file.name for file in tmp_path.iterdir()] == ["x.sh"]


@given(
    st.text(max_size=40),
    st.sampled_from([batch_values.WORD, batch_values.EXPRESSION, batch_values.PATH, batch_values.NAME]),
)
def test_what_is_let_through_is_tame(value: str, kind: batch_values.Kind) -> None:
    try:
        batch_values.check("queue", value, kind)
    except BadInput:
        return
    assert is_tame(value)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_scripts_of_any_start_read_back_as_that_start(start: list[str]) -> None:
    line = batch_script.start_here(order(("run", *start), {}))[0]
    assert shlex.split(line) == ["exec", "run", *start]
