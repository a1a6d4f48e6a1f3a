"""Plant a bug: replace a piece of a function's source for the time of a test, wherever the function is known."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], old: str, new: str) -> None:
    """Rewrite `old` to `new` in a function of the product; fails if the product no longer holds `old`."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"the planted bug no longer fits {function.__qualname__}: {old!r}"
    home = sys.modules[function.__module__]
    scope: dict[str, Any] = {}  # its globals are the module's own: it sees what else is planted there
    exec(compile(source.replace(old, new), f"<planted in {function.__qualname__}>", "exec"), vars(home), scope)
    planted = scope[function.__name__]
    owner, _, _ = function.__qualname__.rpartition(".")
    if owner:
        monkeypatch.setattr(getattr(home, owner), function.__name__, planted)
        return
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("shoal") and vars(module).get(function.__name__) is function:
            monkeypatch.setattr(module, function.__name__, planted)
