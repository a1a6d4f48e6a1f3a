"""What all figures share: matplotlib, imported here and only when a figure is drawn, and how a figure becomes a file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

from shoal.model.errors import BadInput


def require_matplotlib(field: str) -> None:
    """Refuse a Python without matplotlib, and say how to get it."""
    try:
        import matplotlib  # noqa: F401  # only to know that it is there
    except ImportError:
        raise BadInput(
            "a figure needs matplotlib, which is not installed", code="no_matplotlib", field=field,
            hint="pip install 'shoal[plot]'",
        ) from None  # fmt: skip


def render(draw: Callable[[Any], None], kind: str, size: tuple[float, float]) -> bytes:
    """The figure that `draw` draws, as a file of this format. The same figure gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text of SVG stays text; names may hold `$`, which is no formula here.
    rules: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "shoal", "text.parse_math": False}
    with rc_context(rules), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a name in a script that the font has not
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        target = io.BytesIO()
        figure.savefig(target, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return target.getvalue()
