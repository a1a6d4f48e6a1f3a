"""`import shoal.joblib` makes "shoal" a backend of joblib, and so of scikit-learn's `n_jobs`: client/joblib_backend.py."""

from __future__ import annotations

import sys

try:
    from joblib import parallel_config, register_parallel_backend
except ImportError as error:
    raise ImportError(
        f"shoal.joblib needs joblib 1.3 or newer in {sys.executable} (pip install 'joblib>=1.3'): {error}",
        name="joblib",
    ) from None

from shoal.client.joblib_backend import ShoalBackend

__all__ = ["ShoalBackend", "parallel_config"]

register_parallel_backend("shoal", ShoalBackend)
