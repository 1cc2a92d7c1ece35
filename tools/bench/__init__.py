"""Benches: each program prints a table of this machine's figures (docs/speed.md)."""
