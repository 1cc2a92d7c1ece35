"""Bytes as the papers count them (METHODS section 1), to be shown beside what was metered.

ZeroDFL: R * K * k * b with b = 14 bytes for each number, which gives back its printed 46.48, 3.94
and 0.81 "GB" (GiB, for 59 clients, 500 rounds, 4 x 512 numbers). All others exchange with a server:
what each client sends up and gets down in a round, in float32 (FedTPG in float16), times K and R.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

ZERODFL_BYTES: Final = 14
Shapes = Mapping[str, tuple[int, ...]]


def zerodfl(rounds: int, clients: int, recipients: int, numbers: int, each: int) -> int:
    """Return R * K * k * b of messages with so many numbers of `each` bytes."""
    return rounds * clients * recipients * numbers * each


def by_paper(policy: str, config: Any, shapes: Shapes, rounds: int, clients: int) -> int | None:
    """Return the bytes that a method's paper would count; None where nothing is exchanged."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    whole = sum(sizes.values())
    if policy == "zerodfl":
        rows, width = shapes["context"]
        if isinstance(config.rows_shared, int):
            rows = min(rows, config.rows_shared)
        recipients = min(config.recipients, clients)
        return zerodfl(rounds, clients, recipients, rows * width, ZERODFL_BYTES)
    if policy in {"promptfl", "fedmaple", "fedclip"}:
        return rounds * clients * 2 * whole * 4
    if policy == "fedtpg":
        return rounds * clients * 2 * whole * 2
    if policy == "feddpt":
        text = max((size for name, size in sizes.items() if name.startswith("text.")), default=0)
        visual = sum(size for name, size in sizes.items() if name.startswith("visual."))
        return rounds * clients * ((text + visual) + whole) * 4
    if policy == "diprompt":
        drawn = min(config.participants or clients, clients)
        return rounds * drawn * 2 * whole * 4
    if policy == "plan":
        prompts = sum(size for name, size in sizes.items() if name in {"text", "visual"})
        up, down = prompts + (whole - prompts), prompts + clients * prompts + (whole - prompts)
        return rounds * clients * (up + down) * 4
    return None
