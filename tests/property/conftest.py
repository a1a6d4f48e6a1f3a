"""One profile for all properties: 30 examples, always the same ones; `make prove` takes 2,000 fresh ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("test", max_examples=30, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("prove", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.load_profile("prove" if os.environ.get("SHOAL_PROVE") == "1" else "test")
