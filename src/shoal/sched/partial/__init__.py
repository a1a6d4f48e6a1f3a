"""Partial results: what tasks emit while they run, reduced and merged into one current answer [DIANE U13; ADR 0053]."""
