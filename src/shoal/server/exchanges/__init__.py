"""Exchanges of pilots, sent by themselves or handed on by a leader."""
