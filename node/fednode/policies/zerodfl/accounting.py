"""Bytes as ZeroDFL's paper counts them (METHODS section 1): R * K * k * b, with b = 14 bytes.

With 59 clients, 500 rounds and 4 x 512 numbers this gives back the paper's printed 46.48, 3.94 and
0.81 "GB", which are GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fednode.policies.zerodfl.config import ZeroDFLConfig

PAPER_BYTES: Final = 14
"""Bytes that the paper counts for each number."""


def exchanged(rounds: int, clients: int, recipients: int, numbers: int, each: int) -> int:
    """Return R * K * k * b: the bytes of messages with so many numbers of `each` bytes."""
    return rounds * clients * recipients * numbers * each


def paper_bytes(
    config: ZeroDFLConfig, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
) -> int | None:
    """Return the bytes that the paper would count for a run."""
    rows, width = shapes["context"]
    if config.rows_shared is not None:
        rows = min(rows, config.rows_shared)
    recipients = min(config.recipients, clients)
    return exchanged(rounds, clients, recipients, rows * width, PAPER_BYTES)
