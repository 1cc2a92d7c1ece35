"""Measure Flower: a server and clients, each a process of its own, that train nothing.

    python -m tests.bench.rivals.flower_rounds --rounds 50 --numbers 64

It runs in Flower's environment and prints one JSON line. It uses `start_server` and `start_client`,
which keep a stream between client and server open. Flower has marked both as deprecated; their
successors, SuperLink and SuperNode, start a program for each run and client, and are slower.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.rivals.children import Children, interface_bytes, say

LIMIT_S: Final = 120.0
ADDRESS: Final = "127.0.0.1:18080"


def client() -> None:
    """Run a client that answers with the numbers it gets."""
    from flwr.client import NumPyClient, start_client

    class Echo(NumPyClient):  # type: ignore[misc, unused-ignore]
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters, 1, {}

    start_client(server_address=ADDRESS, client=Echo().to_client(), insecure=True)


def server(nodes: int, rounds: int, numbers: int) -> None:
    """Run the server, and tell the parent when each round is merged."""
    import numpy as np
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerConfig, start_server
    from flwr.server.strategy import FedAvg

    class Timed(FedAvg):  # type: ignore[misc, unused-ignore]
        def aggregate_fit(self, *args: Any, **more: Any) -> Any:
            merged = super().aggregate_fit(*args, **more)
            say("merged", on_lo=interface_bytes())
            return merged

    strategy = Timed(
        fraction_evaluate=0.0,
        min_fit_clients=nodes,
        min_available_clients=nodes,
        initial_parameters=ndarrays_to_parameters([np.zeros(numbers, np.float32)]),
    )
    start_server(server_address=ADDRESS, config=ServerConfig(num_rounds=rounds), strategy=strategy)


def measure(folder: Path, nodes: int, rounds: int, numbers: int) -> dict[str, float]:
    """Return seconds and bytes of a round, from the first merge to the last one."""
    program = [sys.executable, "-m", "tests.bench.rivals.flower_rounds"]
    given = ["--nodes", str(nodes), "--rounds", str(rounds), "--numbers", str(numbers)]
    with Children() as children:
        one = children.start([*program, "--role", "server", *given], folder / "server.log")
        for index in range(nodes):
            children.start([*program, "--role", "client"], folder / f"{index}.log")
        deadline = time.monotonic() + LIMIT_S
        first = one.take("merged", deadline)
        last = first
        for _ in range(rounds - 1):
            last = one.take("merged", deadline)
    counted = rounds - 1
    return {
        "round_s": (last["at"] - first["at"]) / counted,
        "rounds": counted,
        "prompts": 2.0 * nodes,
        "interface_bytes": (last["on_lo"] - first["on_lo"]) / counted,
    }


def main() -> int:
    """Measure rounds and print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals.flower_rounds")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--numbers", type=int, default=64)
    parser.add_argument("--role", choices=("server", "client"))
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.role == "server":
        server(given.nodes, given.rounds, given.numbers)
        return 0
    if given.role == "client":
        client()
        return 0
    with tempfile.TemporaryDirectory(prefix="fednode-rival-") as name:
        found = measure(Path(name), given.nodes, given.rounds, given.numbers)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
