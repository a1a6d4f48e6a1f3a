"""Draw docs/figures/shares.svg: due against used share over time, from bench/out/shares.json (`python -m bench exp_shares`).

Plain SVG without a library; the colours follow the reader's light or dark page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT = 860, 430
LEFT, RIGHT, TOP, BOTTOM = 52, 118, 54, 44
LIGHT = ("#0072b2", "#b35900", "#00795a", "#a3447c", "#3f6fd1", "#6b6b6b")
DARK = ("#56b4e9", "#ffa94d", "#3fd6a6", "#e58fc3", "#a3b8ff", "#b5b5b5")
GAP = 15.0  # between two names at the right edge


def draw(data: dict[str, Any]) -> str:
    """The whole figure."""
    seconds, lines = data["seconds"], data["lines"]
    last: float = max(seconds)
    top: float = 1.08 * max(max(line["used"] + line["due"]) for line in lines.values())

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / last

    def y(part: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part / top

    parts = [_head()]
    for tenth in range(int(top * 10) + 1):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tenth / 10):.1f}" y2="{y(tenth / 10):.1f}"/>'
        )
        parts.append(
            f'<text class="small" x="{LEFT - 8}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">{tenth * 10} %</text>'
        )
    for minute in range(0, int(last // 60) + 1, 10):
        parts.append(
            f'<text class="small" x="{x(minute * 60):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{minute}</text>'
        )
    parts.append(
        f'<text class="small" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">minutes</text>'
    )
    for at, (name, line) in enumerate(lines.items()):
        for kind in ("due", "used"):
            points = " ".join(f"{x(s):.1f},{y(part):.1f}" for s, part in zip(seconds, line[kind], strict=True))
            parts.append(f'<polyline class="{kind} c{at}" points="{points}"><title>{name}: {kind}</title></polyline>')
    parts += _names(data, y)
    return "\n".join([*parts, "</svg>", ""])


def _names(data: dict[str, Any], y: Callable[[float], float]) -> list[str]:
    """Names at the right edge, moved apart where lines end close together."""
    ends = sorted((y(line["used"][-1]), at, name) for at, (name, line) in enumerate(data["lines"].items()))
    found, above = [], -GAP
    for end, at, name in ends:
        above = max(end, above + GAP)
        share = data["shares"].get(name)
        text = f"{name} (share {share:g})" if share else name
        found.append(f'<text class="name n{at}" x="{WIDTH - RIGHT + 8}" y="{above + 4:.1f}">{text}</text>')
    return found


def _head() -> str:
    def colours(palette: tuple[str, ...]) -> str:
        return "".join(f".c{at}{{stroke:{colour}}}.n{at}{{fill:{colour}}}" for at, colour in enumerate(palette))

    style = (
        "text{font:13px sans-serif;fill:#222}.small{font-size:12px;fill:#555}.title{font-size:15px;font-weight:bold}"
        ".grid{stroke:#ddd}.key{stroke:#222}polyline{fill:none;stroke-linejoin:round}"
        ".used{stroke-width:2}.due{stroke-width:1.4;stroke-dasharray:5 4}"
        + colours(LIGHT)
        + "@media (prefers-color-scheme:dark){text{fill:#eee}.small{fill:#bbb}.grid{stroke:#444}.key{stroke:#eee}"
        + colours(DARK)
        + "}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t">',
            f"<style>{style}</style>",
            f'<text id="t" class="title" x="{LEFT}" y="20">Part of 20 slots: due and used, over the last two minutes</text>',
            f'<line class="key used" x1="{LEFT}" x2="{LEFT + 26}" y1="38" y2="38"/><text x="{LEFT + 32}" y="42">used</text>',
            f'<line class="key due" x1="{LEFT + 86}" x2="{LEFT + 112}" y1="38" y2="38"/><text x="{LEFT + 118}" y="42">due</text>',
        ]
    )


def main() -> int:
    """Read the data, write the figure."""
    source, target = ROOT / "bench" / "out" / "shares.json", ROOT / "docs" / "figures" / "shares.svg"
    if not source.exists():
        print(f"{source} is missing: run `.venv/bin/python -m bench exp_shares` first", file=sys.stderr)
        return 1
    target.parent.mkdir(exist_ok=True)
    target.write_text(draw(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
