"""What a container runtime is told. That runtimes take it so is proved in tests/integration/test_surroundings.py."""

from __future__ import annotations

import os

import pytest

from shoal.pilot.commands import container
from shoal.pilot.commands.container import ContainerRequest
from shoal.pilot.commands.files import StageError
from shoal.pilot.guard.start_progress import StartStage

GATE = StartStage("/w/mark", (), "debian:12", "shoal-x")
WISH = ContainerRequest(
    ["prog", "a b"], "/w/own", "/data/a", ["/w/own", "/data/a"], ["/w/script.sh"], {"KEY": "secret"}
)


def test_values_of_variables_are_nowhere_in_the_script() -> None:
    text = container.become(GATE, WISH)
    assert "secret" not in text and "--env KEY" in text


def test_the_order_is_apptainer_singularity_podman_docker() -> None:
    text = container.become(GATE, WISH)
    looks = [text.index(f"command -v {name}") for name in ("apptainer", "singularity", "podman", "docker")]
    assert looks == sorted(looks)


def test_all_that_the_task_needs_is_mounted_under_its_own_name() -> None:
    text = container.become(GATE, WISH)
    for path in ("/w/own", "/data/a", "/w/script.sh"):
        assert f"--bind {path}" in text and f"--volume {path}:{path}" in text
    assert "--pwd /w/own" in text and "--workdir /w/own" in text and text.count("prog 'a b'") == 2


@pytest.mark.parametrize(
    ("image", "apptainers", "dockers"),
    [
        ("debian:12", "docker://debian:12", "debian:12"),
        ("docker://debian:12", "docker://debian:12", "debian:12"),
        ("sub/tool.sif", "/data/a/sub/tool.sif", None),
        ("/data/tool.sif", "/data/tool.sif", None),
        ("oras://host/x", "oras://host/x", None),
    ],
)
def test_an_image_is_named_as_each_runtime_wants_it(image: str, apptainers: str, dockers: str | None) -> None:
    text = container.become(StartStage("/w/mark", (), image, "shoal-x"), WISH)
    assert f" {apptainers} prog" in text
    assert ("podman" in text) is (dockers is not None)
    if dockers is not None:
        assert f" {dockers} prog" in text and f"pull {dockers} " in text


@pytest.mark.parametrize("path", ["/data/a:b", "/data/a,b"])
def test_a_directory_that_no_runtime_can_name_is_said(path: str) -> None:
    with pytest.raises(StageError, match="comma or a colon"):
        container.become(GATE, ContainerRequest(["x"], path, folders=[path]))


def test_devices_memory_and_input_are_asked_for_only_where_the_task_has_them() -> None:
    plain = container.become(GATE, ContainerRequest(["x"], "/w"))
    assert not any(word in plain for word in ("--nv", "--gpus", "nvidia", "--memory", "--interactive"))
    rich = container.become(GATE, ContainerRequest(["x"], "/w", gpus=1, memory=1 << 20, has_stdin=True))
    assert all(
        word in rich for word in ("--nv", "--gpus all", "nvidia.com/gpu=all", "--memory 1048576b", "--interactive")
    )


@pytest.mark.parametrize(
    ("uid", "has", "expected"),
    [(0, False, ["--user", "0:0"]), (7, True, ["--user", "7:8", "--userns=keep-id"]), (7, False, ["--user", "0:0"])],
)
def test_files_made_in_podman_are_the_persons(
    monkeypatch: pytest.MonkeyPatch, uid: int, has: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(os, "getgid", lambda: 8 if uid else 0)
    monkeypatch.setattr(container, "_has_subuids", lambda uid: has)
    monkeypatch.setattr(container, "_INIT", ())
    assert container._podmans(ContainerRequest(["x"], "/w")) == expected
