"""A ZeroDFL node's rows: which are shared, taken and checked, and the jobs that tune them. Pure.

With `rows_shared: s`, rows [0, s) of the prompts are sent and replaced; the others stay private.
"""

from __future__ import annotations

import random

from fednode.core.policy import NodeContext
from fednode.core.types import EMPTY, MEASURE, Array, Job, Message, Tensors
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.state import ROWS, Memory


def shared(config: ZeroDFLConfig, memory: Memory) -> int:
    """Return s, the number of rows that a node shares."""
    every = len(memory.tensors[ROWS])
    return every if config.rows_shared is None else min(config.rows_shared, every)


def drawn(config: ZeroDFLConfig, memory: Memory, generator: random.Random) -> dict[int, Array]:
    """Take the received rows for the exchanged positions from the pool: position -> row."""
    taken = memory.pool.draw(shared(config, memory), generator, config.positions == "kept")
    memory.pool.grow_older()
    memory.givers = memory.pool.givers
    return taken


def training(context: NodeContext, number: int, memory: Memory) -> Job:
    """Return the job that tunes the prompts in a round."""
    return Job(
        round=number,
        stage="prompts",
        tensors=memory.tensors,
        carry=memory.carry,
        seed=context.draw_seed(number, "prompts"),
        rounds=context.rounds.max,
    )


def measuring(context: NodeContext, number: int, base: Tensors, tried: Array) -> Job:
    """Return the job that measures `base` with rows on trial."""
    tensors = Tensors({**base, ROWS: tried})
    seed = context.draw_seed(number, MEASURE)
    return Job(round=number, stage=MEASURE, tensors=tensors, seed=seed, measure=False)


def take(config: ZeroDFLConfig, memory: Memory, base: Tensors, merged: Array | None) -> None:
    """Hold `base`, with merged rows [m, width] in place of its own; None: as it is."""
    memory.tensors = base if merged is None else Tensors({**base, ROWS: merged})
    memory.givers = memory.givers if merged is not None else ()
    if merged is not None and config.optimizer == "reset":
        memory.carry = EMPTY


def fault(config: ZeroDFLConfig, memory: Memory, message: Message) -> str:
    """Say why a message's phase or rows do not fit; "" if they fit."""
    if message.phase == "done":
        return "" if not message.tensors else "phase 'done' carries no tensors"
    if message.phase != "prompts":
        return f"zerodfl has no phase {message.phase!r}"
    count, width = shared(config, memory), memory.tensors[ROWS].shape[1]
    if count and message.tensors.shapes == {ROWS: (count, width)}:
        return ""
    return f"phase 'prompts' carries {ROWS}[{count}, {width}] here, not {message.tensors!r}"
