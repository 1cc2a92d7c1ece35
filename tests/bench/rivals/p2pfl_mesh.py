"""Measure p2pfl: a full mesh of nodes over gRPC, each a process of its own, that train nothing.

    python -m tests.bench.rivals.p2pfl_mesh --rounds 5 --numbers 64 --death-limit 60

It runs in p2pfl's environment and prints one JSON line. p2pfl keeps its default settings, but for
two: Ray is off, so that no second runtime starts, and only errors are logged.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.bench.rivals.children import Child, ChildError, Children, interface_bytes, listen, say

READY_S: Final = 60.0
ROUND_LIMIT_S: Final = 60.0
FIT_S: Final = 2.0
"""Local training in the mesh that loses a node, so that the death falls into it."""
DEATH_ROUNDS: Final = 50


def node(numbers: int, fit_s: float) -> None:
    """Run one node; tell the parent of each local training, and count what is sent."""
    from p2pfl.settings import Settings

    Settings.general.DISABLE_RAY = True
    Settings.general.LOG_LEVEL = "ERROR"
    from p2pfl.communication.protocols.protobuff.grpc.client import GrpcClient
    from p2pfl.node import Node

    learner, model, data = toy(numbers, fit_s)
    sent = {"messages": 0, "models": 0, "bytes": 0}
    counting, original = threading.Lock(), GrpcClient.send

    def send(self: Any, msg: Any, *args: Any, **more: Any) -> Any:
        with counting:
            sent["models" if msg.HasField("weights") else "messages"] += 1
            sent["bytes"] += msg.ByteSize()
        return original(self, msg, *args, **more)

    GrpcClient.send = send
    learner.on_fit = lambda: say("fit", **sent)
    one = Node(model, data, addr="127.0.0.1", learner=learner)
    one.start()
    say("ready", address=one.addr)
    listen(
        {
            "connect": lambda said: say("connected", ok=bool(one.connect(said["address"]))),
            "neighbours": lambda _: say("neighbours", count=len(one.get_neighbors())),
            "learn": lambda said: one.set_start_learning(rounds=said["rounds"], trainset_size=4),
        }
    )


def toy(numbers: int, fit_s: float) -> tuple[Any, Any, Any]:
    """Return p2pfl's learner, model and data for an array of this many float32 numbers."""
    from types import SimpleNamespace

    import numpy as np
    from p2pfl.learning.frameworks.learner import Learner
    from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel

    class Array(P2PFLModel):  # type: ignore[misc, unused-ignore]
        def get_parameters(self) -> Any:
            return self.model["numbers"]

        def set_parameters(self, params: Any) -> None:
            if isinstance(params, bytes):
                params, more = self.decode_parameters(params)
                self.additional_info.update(more)
            self.model["numbers"] = params

        def get_framework(self) -> str:
            return "numpy"

    class Waiting(Learner):  # type: ignore[misc, unused-ignore]
        on_fit: Any = None

        def fit(self) -> Any:
            self.on_fit()
            threading.Event().wait(fit_s)
            self.get_model().set_contribution([self.addr], 1)
            return self.get_model()

        def interrupt_fit(self) -> None:
            pass

        def evaluate(self) -> dict[str, float]:
            return {}

        def get_framework(self) -> str:
            return "numpy"

    model = Array({"numbers": [np.zeros(numbers, np.float32)]})
    return Waiting(), model, SimpleNamespace(dataset_name="none", batch_size=1)


def mesh(children: Children, folder: Path, nodes: int, numbers: int, fit_s: float) -> list[Child]:
    """Start the nodes and connect each with every other."""
    command = [sys.executable, "-m", "tests.bench.rivals.p2pfl_mesh", "--node"]
    command += ["--numbers", str(numbers), "--fit", str(fit_s)]
    started = [children.start(command, folder / f"{i}-{fit_s}.log") for i in range(nodes)]
    deadline = time.monotonic() + READY_S
    known: list[str] = []
    for child in started:
        address = child.take("ready", deadline)["address"]
        for other in known:
            child.tell(do="connect", address=other)
            if not child.take("connected", deadline)["ok"]:
                raise ChildError("two nodes could not connect")
        known.append(address)
    for child in started:
        while True:
            child.tell(do="neighbours")
            if child.take("neighbours", deadline)["count"] >= nodes - 1:
                break
            threading.Event().wait(0.2)
    return started


def pace(folder: Path, nodes: int, rounds: int, numbers: int) -> dict[str, float]:
    """Return seconds, messages and bytes a round, from the first training to the last one."""
    with Children() as children:
        members = mesh(children, folder, nodes, numbers, 0.0)
        began = time.monotonic()
        members[0].tell(do="learn", rounds=rounds)
        deadline = began + ROUND_LIMIT_S * rounds
        first = [child.take("fit", deadline) for child in members]
        low = interface_bytes()
        last = first
        for _ in range(rounds - 1):
            last = [child.take("fit", deadline) for child in members]
        high = interface_bytes()
    counted = rounds - 1
    slowest = max(b["at"] - a["at"] for a, b in zip(first, last, strict=True))

    def each(key: str) -> float:
        counts: list[int] = [b[key] - a[key] for a, b in zip(first, last, strict=True)]
        return sum(counts) / counted

    return {
        "round_s": slowest / counted,
        "start_s": max(one["at"] for one in first) - began,
        "rounds": counted,
        "prompts": each("models"),
        "control": each("messages"),
        "bytes": each("bytes"),
        "interface_bytes": (high - low) / counted,
    }


def death(folder: Path, nodes: int, numbers: int, limit_s: float) -> dict[str, Any]:
    """Kill a node while it trains; return the seconds until all survivors train the next time.

    A training begins when the round before it has ended. So the survivors have then ended the
    round that the death fell into. All train as the node dies.
    """
    with Children() as children:
        members = mesh(children, folder, nodes, numbers, FIT_S)
        members[0].tell(do="learn", rounds=DEATH_ROUNDS)
        deadline = time.monotonic() + 2 * ROUND_LIMIT_S
        for _ in range(2):
            for child in members:
                child.take("fit", deadline)
        threading.Event().wait(FIT_S / 4)
        *left, victim = members
        victim.kill()
        began = time.monotonic()
        ends = []
        for child in left:
            try:
                ends.append(child.take("fit", began + limit_s)["at"] - began)
            except ChildError as error:
                if time.monotonic() < began + limit_s:
                    return {"recovery_s": None, "recovery_note": str(error)}
                note = f"no survivor's next round within {limit_s:.0f} s"
                return {"recovery_s": None, "recovery_limit_s": limit_s, "recovery_note": note}
    return {"recovery_s": max(ends), "recovery_limit_s": limit_s}


def main() -> int:
    """Measure pace and, where --death-limit is above 0, a death; print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals.p2pfl_mesh")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--numbers", type=int, default=64)
    parser.add_argument("--death-limit", type=float, default=0.0)
    parser.add_argument("--fit", type=float, default=0.0)
    parser.add_argument("--node", action="store_true")
    given = parser.parse_args()
    if given.node:
        node(given.numbers, given.fit)
        return 0
    with tempfile.TemporaryDirectory(prefix="fednode-rival-") as name:
        found: dict[str, Any] = dict(pace(Path(name), given.nodes, given.rounds, given.numbers))
        if given.death_limit:
            found |= death(Path(name), given.nodes, given.numbers, given.death_limit)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
