"""Experiments of the paper on the CMS task queue [CMS]: `c.*`."""
