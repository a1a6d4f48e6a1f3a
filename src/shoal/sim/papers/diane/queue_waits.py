"""The queue waits of the thesis, rebuilt from what it prints (`queue_waits.toml` says how), and the parameters they bring."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from shoal.sim.papers.experiment import Inputs, Parameter, Source
from shoal.sim.papers.waits import Waits

NAMES = ("LHCb", "ATLAS", "Geant4")

# How far the rebuilt middle and upper part are moved: 1 is as the file has them, and by half shows what they matter.
MIDDLE = Parameter(
    "middle", 1.0, Source.CHOSEN, "factor on the rebuilt quartiles; queue_waits.toml says what is uncertain"
)
UPPER = Parameter("upper", 1.0, Source.CHOSEN, "factor on the rebuilt 0.95 quantile; the same file")


def waits_parameter(name: str) -> Parameter:
    """The parameter that names the distribution."""
    return Parameter("waits", name, Source.PAPER, "3.3, table 3.1 and the text around it; rebuilt in queue_waits.toml")


def published(name: str, middle: float = 1.0, upper: float = 1.0, confident: bool = False) -> Waits:
    """The waits of LHCb, ATLAS or Geant4, the quartiles and the 0.95 quantile moved by these factors. `confident`: by the
    second reading of the 0.95 quantile."""
    table = tomllib.loads(Path(__file__).with_name("queue_waits.toml").read_text(encoding="utf-8"))
    shares, seconds = np.array(table["shares"]), np.array(table[name]["waits"])
    if confident:
        seconds[shares == 0.95] = table["confident"][name]
    moved = seconds * np.where((shares >= 0.25) & (shares <= 0.75), middle, np.where(shares == 0.95, upper, 1.0))
    return Waits(name, shares, np.minimum(np.maximum.accumulate(moved), seconds[-1]))


def waits_for(inputs: Inputs, confident: bool = False) -> Waits:
    """The user's own waits, else those that the settings name."""
    if inputs.waits is not None:
        return inputs.waits
    settings = inputs.settings
    return published(settings["waits"], float(settings["middle"]), float(settings["upper"]), confident)
