"""Backends by name: those of Shoal, and those that other packages bring as entry points `shoal.backends`.

An entry point names a class, or a function, that takes the site's options and gives a backend.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Protocol, cast

from shoal.model.errors import BadInput, echo
from shoal.provision.backend import Backend, BackendError
from shoal.provision.batch_script import NO_OPTIONS
from shoal.provision.batch_values import check_options
from shoal.wire.did_you_mean import did_you_mean

GROUP = "shoal.backends"
BUILT_IN = {  # name -> module of this package and class
    "slurm": "slurm:Slurm",
    "sge": "sge:Sge",
    "pbs": "pbs:Pbs",
    "lsf": "lsf:Lsf",
    "htcondor": "htcondor:HtCondor",
    "kubernetes": "kubernetes:Kubernetes",
    "local": "local:Local",
    "command": "command:CommandBackend",
}


class Factory(Protocol):
    """What makes a backend for a site; `options` says which options that site may have."""

    options: frozenset[str]

    def __call__(self, options: Mapping[str, str]) -> Backend:
        """The backend of a site with these options."""


def names() -> list[str]:
    """Every backend that there is."""
    return sorted({*BUILT_IN, *(point.name for point in importlib.metadata.entry_points(group=GROUP))})


def factory(name: str) -> Factory:
    """The class of a backend; raises BadInput with the nearest name if there is none."""
    if name in BUILT_IN:
        module, _, kind = BUILT_IN[name].partition(":")
        return cast(Factory, getattr(importlib.import_module(f"shoal.provision.{module}"), kind))
    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        try:
            return cast(Factory, point.load())
        except Exception as error:  # whatever the other package raises while it is imported
            what = f"the backend {echo(name)} of {echo(point.value)} cannot be loaded: {echo(str(error))}"
            raise BackendError(what, hint="repair or remove that package") from error
    raise BadInput(
        f"no backend {echo(name)}", code="unknown_backend", field="backend", hint=did_you_mean(name, names())
    )


def make(name: str, options: Mapping[str, str] = NO_OPTIONS) -> Backend:
    """The backend of a site with these options, which are checked here."""
    made = factory(name)
    if not getattr(made, "checks_options", False):  # templates of `command` are no values of directives
        check_options(options, made.options, name)
    return made(options)
