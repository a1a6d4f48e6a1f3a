"""Submissions of a simulated world: single tasks, arrays, function calls, chains, fans, every re-run class, retries,
limits; tasks that write checkpoints while they run; many short commands; and divisible work."""

from __future__ import annotations

from random import Random
from typing import Any

SHORT = ["short"]  # the command of tasks that are over in a moment
DIVISIBLE = "units"  # the program of pieces, with the seconds that each piece and each unit take


def draw_submissions(rng: Random) -> list[tuple[float, list[dict[str, Any]]]]:
    """Some submissions, each with the time at which it comes."""
    return [(rng.uniform(0.0, 300.0), _draw(rng)) for _ in range(rng.randint(2, 5))]


def draw_checkpointed(rng: Random) -> list[tuple[float, list[dict[str, Any]]]]:
    """Tasks of several steps that write a checkpoint after each; drawn apart from the others."""
    task = {"command": ["payload"], "checkpoint": ["state"], "rerun": rng.choice(["safe", "safe", "exclusive"])}
    return [(rng.uniform(0.0, 600.0), [{**task, "array": f"1-{rng.randint(1, 4)}", "retries": rng.choice([0, 2])}])]


def draw_short(rng: Random) -> list[tuple[float, list[dict[str, Any]]]]:
    """An array of commands that take milliseconds, but for a few; in half of the worlds, drawn apart from the others."""
    count, retries = rng.randint(20, 120), rng.choice([0, 2])
    task = {"command": SHORT, "array": f"1-{count}", "retries": retries}
    return [(rng.uniform(0.0, 300.0), [task])] if rng.random() < 0.5 else []


def draw_divisible(rng: Random) -> list[tuple[float, list[dict[str, Any]]]]:
    """Divisible work, and sometimes a task that waits for it; in half of the worlds, drawn apart from the others."""
    units, rerun = rng.choice([1, 7, 60, 400, 3_000]), rng.choice(["safe", "safe", "exclusive"])
    cost, fixed = rng.uniform(0.2, 1.5) * 400.0 / units, rng.choice([0.0, 0.1, 5.0])
    command = [DIVISIBLE, f"{fixed}", f"{cost}"]
    work = {"name": "work", "command": command, "units": units, "rerun": rerun, "retries": rng.choice([0, 1, 3])}
    merge = [{"name": "merge", "command": ["payload"], "after": ["work"]}] if rng.random() < 0.5 else []
    return [(rng.uniform(0.0, 900.0), [work, *merge])] if rng.random() < 0.5 else []


def _draw(rng: Random) -> list[dict[str, Any]]:
    kind = rng.choice(["array", "array", "calls", "mixed", "chain", "fan"])
    base: dict[str, Any] = {"command": ["payload"], "retries": rng.choice([0, 0, 1, 3])}
    if kind == "array":
        limit = rng.choice(["", "%2"])
        return [{**base, "array": f"1-{rng.randint(3, 25)}{limit}"}]
    if kind == "calls":
        return [{"function": "gAU=", "calls": ["gAU="] * rng.randint(3, 60), "retries": base["retries"]}]
    if kind == "mixed":
        classes = [rng.choice(["safe", "exclusive", "never"]) for _ in range(rng.randint(2, 8))]
        return [
            {"command": ["payload"], "rerun": c, "cores": rng.choice([1, 1, 2]), "retries": 0 if c == "never" else 2}
            for c in classes
        ]
    if kind == "chain":
        names = [f"step{n}" for n in range(rng.randint(2, 5))]
        return [{**base, "name": n, "after": names[at - 1 : at] if at else []} for at, n in enumerate(names)]
    width = rng.randint(2, 6)
    return [
        {**base, "name": "split"},
        {**base, "name": "work", "after": ["split"], "array": f"1-{width}"},
        {**base, "name": "merge", "after": ["work"], "rerun": rng.choice(["safe", "exclusive"])},
    ]
