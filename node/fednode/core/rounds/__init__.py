"""Rounds that a whole mesh runs together, and the parts that policies build them from."""
