"""Decide everything, do nothing: the pure core (stdlib and numpy only)."""
