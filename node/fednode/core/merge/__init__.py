"""Means and robust merges of what nodes contribute."""
