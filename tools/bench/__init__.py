"""Benches: `python -m tools.bench.NAME`, where NAME is tuning, wire, mesh, scale, merges or start.

Each prints a table of this machine's figures, or JSON with --json. docs/speed.md has tables.
"""
