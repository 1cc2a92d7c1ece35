"""Measure fednode as the scripts of the rivals measure them, and print one JSON line.

    python -m tests.bench.rivals.fednode_mesh --mode async --numbers 64

It is `fednode bench mesh` with prompts of a given size in float32.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from fednode.lab.bench.mesh import WIDTH, Prompts, measure


def main() -> int:
    """Measure a mesh and print one JSON line; MeshRow of fednode.lab.bench.mesh says of what."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals.fednode_mesh")
    parser.add_argument("--mode", choices=("async", "sync"), default="async")
    parser.add_argument("--policy", default="zerodfl")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--numbers", type=int, default=64, help="a multiple of 16")
    parser.add_argument("--death", action="store_true")
    given = parser.parse_args()
    prompts = Prompts(rows=given.numbers // WIDTH, dtype="float32", policy=given.policy)
    with tempfile.TemporaryDirectory(prefix="fednode-rival-") as name:
        row = asyncio.run(
            measure(Path(name), given.mode, given.nodes, given.rounds, False, given.death, prompts)
        )
    sys.stdout.write(json.dumps(asdict(row)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
