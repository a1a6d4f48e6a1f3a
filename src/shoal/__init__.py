"""Shoal: pilots that pull tasks, over any batch system, with one small server."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`shoal.results(run)`, loaded when first asked for: pilots and servers import this file too."""
    if name == "results":
        import importlib

        return importlib.import_module(f"{__name__}.report.results").results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
