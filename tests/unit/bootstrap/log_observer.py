"""A client that answers for fake daemons from their logs."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from fednode.errors import Unreachable
from fednode.observe.client import Client
from fednode.wire.gen.status_pb2 import Round, StatusReply, Traffic


class LogObserver(Client):
    """Answer for fake daemons from their logs, wherever below a folder they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.closed = False

    def report(self, address: str) -> dict[str, object]:
        """Return the last line of JSON that the daemon at an address wrote since it started."""
        for peers in self.folder.rglob("peers.yaml"):
            for peer in yaml.safe_load(peers.read_text())["peers"]:
                log = peers.parent / f"{peer['name']}.log"
                if peer["address"] == address and log.exists():
                    lines = [one for one in log.read_text().splitlines() if one.startswith("{")]
                    if lines:
                        found: dict[str, object] = json.loads(lines[-1])
                        return found
        raise Unreachable(f"Nobody answers at {address}.")

    async def status(self, address: str) -> StatusReply:
        """Return what the daemon's log says."""
        found = self.report(address)
        sent = int(str(found["payload"]))
        traffic = Traffic(payload_out=sent, serialized_out=2 * sent, wire_out=3 * sent)
        return StatusReply(
            **{name: found[name] for name in ("name", "life", "round", "rounds_max", "pid")},  # type: ignore[arg-type]
            metrics=found["metrics"],  # type: ignore[arg-type]
            measured=found["metrics"],  # type: ignore[arg-type]
            phase="idle",
            traffic=traffic,
            model="fake",
        )

    async def history(self, address: str, since: int = 0) -> list[Round]:
        """Return two rounds: one without accuracies, and the last."""
        now = await self.status(address)
        figures = {key: now.metrics[key] for key in ("base", "new", "own")}
        first = Round(round=1, metrics={"loss": 1.0})
        return [first, Round(round=2, metrics=figures, traffic=now.traffic)]

    async def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
