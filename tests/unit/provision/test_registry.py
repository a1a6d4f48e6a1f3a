"""Backends by name."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

import pytest

from shoal.model.errors import BadInput
from shoal.provision import registry
from shoal.provision.backend import BackendError
from shoal.provision.local import Local


class Flux(Local):
    """A backend of another package."""

    name = "flux"
    options = frozenset({"bank"})

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = dict(options)


def plant(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = importlib.metadata.EntryPoint("flux", value, registry.GROUP)
    points = importlib.metadata.EntryPoints([point])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: points.select(**wanted))


@pytest.mark.parametrize("name", sorted(set(registry.BUILT_IN) - {"command"}))
def test_every_built_in_backend_has_the_name_that_it_is_found_by(name: str) -> None:
    assert registry.make(name).name == name


def test_an_unknown_name_leads_to_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean slurm") as caught:
        registry.make("slrum")
    assert caught.value.code == "unknown_backend"


def test_an_unknown_option_leads_to_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean partition"):
        registry.make("slurm", {"partiton": "x"})
    with pytest.raises(BadInput, match="it has no options"):
        registry.make("local", {"queue": "x"})


def test_another_package_brings_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, f"{__name__}:Flux")
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: Flux)
    assert "flux" in registry.names()
    made = registry.make("flux", {"bank": "phys"})
    assert isinstance(made, Flux) and made.given == {"bank": "phys"}


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "no_such_package:Flux")
    with pytest.raises(BackendError, match="no_such_package"):
        registry.make("flux")
