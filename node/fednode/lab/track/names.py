"""How figures are called in a tracker, where "/" makes sections."""

from __future__ import annotations

from collections.abc import Mapping

from fednode.core.types import SPLITS, ZERO_SHOT


def figures(metrics: Mapping[str, float], traffic: Mapping[str, int]) -> dict[str, float]:
    """Return the figures of a node's round.

    metrics: as a round adopts them. traffic: counted from the node's beginning; bytes, but for
    numbers of messages.

        loss/training, loss/validation
        accuracy/own, accuracy/base, accuracy/new, accuracy/validation     0 to 1
        zero-shot accuracy/own, ...       of the hand-written prompt
        traffic/payload_out, traffic/wire_in, ..., traffic/messages_out
    """
    found = {_name(name): value for name, value in metrics.items()}
    return found | {f"traffic/{name}": float(value) for name, value in traffic.items()}


def _name(metric: str) -> str:
    if metric in {"loss", "validation_loss"}:
        return f"loss/{'training' if metric == 'loss' else 'validation'}"
    if metric in SPLITS:
        return f"accuracy/{metric}"
    if metric.startswith(ZERO_SHOT):
        return f"zero-shot accuracy/{metric.removeprefix(ZERO_SHOT)}"
    return f"metrics/{metric}"
