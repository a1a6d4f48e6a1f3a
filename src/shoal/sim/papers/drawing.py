"""The figure of an experiment: a curve for each series, the mean over the seeds with the range between them."""

from __future__ import annotations

from typing import Any

from shoal.report.plotting import render
from shoal.sim.papers.agreement import number
from shoal.sim.papers.findings import Findings, mean_curve

SIZE = (8.0, 5.0)


def draw(found: Findings, kind: str) -> bytes:
    """The figure as a file of this format."""
    return render(lambda figure: _draw(found, figure), kind, SIZE)


def _draw(found: Findings, figure: Any) -> None:
    plot, axes = found.experiment.plot, figure.subplots()
    for series, points in mean_curve(found).items():
        x, mean, low, high = zip(*points, strict=True)
        axes.plot(x, mean, marker=".", lw=1.2, label=series)
        if len(found.seeds) > 1:
            axes.fill_between(x, low, high, alpha=0.2)
    for is_log, scale, axis in ((plot.x_log, axes.set_xscale, axes.xaxis), (plot.y_log, axes.set_yscale, axes.yaxis)):
        if is_log:
            scale("log")
            # Formulas are not drawn, and the powers of ten of such axes would be formulas.
            axis.set_major_formatter(lambda value, at: number(value))
            axis.set_minor_formatter(lambda value, at: "")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    own = ", own waits" if found.own_waits else ""
    axes.set_title(f"{found.experiment.id}: {found.experiment.title} [{found.experiment.section}]{own}", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
