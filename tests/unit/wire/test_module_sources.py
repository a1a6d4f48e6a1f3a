"""The sources of modules as they travel."""

from __future__ import annotations

import pytest

from shoal.wire.module_sources import ModuleSource, ModuleSources, is_installed, of_bytes, to_bytes

ONE = ModuleSource("m", "/p/m.py", None, "x = '\xff\x00'\r\n")
SPACE = ModuleSource("space", "", ["/p/space", "/q/space"], None)


def test_what_travels_arrives() -> None:
    sources = ModuleSources("digest", ("pkg",), (ONE, SPACE))
    assert of_bytes(to_bytes(sources)) == sources


def test_the_same_modules_make_the_same_bytes() -> None:
    some, others = (ModuleSources("d", ("a", "b"), (ONE, SPACE)), ModuleSources("d", ("b", "a"), (SPACE, ONE)))
    assert to_bytes(some) == to_bytes(others)
    assert to_bytes(some) != to_bytes(some._replace(installed="e"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/lib/python3.11/json/__init__.py", True),
        ("/project/.venv/lib/python3.11/site-packages/numpy/__init__.py", True),
        ("/usr/lib/python3/dist-packages/six.py", True),
        ("/project/site.py", False),
        ("/usr/lib/python3.11-things/m.py", False),
    ],
)
def test_what_is_installed(path: str, expected: bool) -> None:
    assert is_installed(path, ["/usr/lib/python3.11"]) == expected
