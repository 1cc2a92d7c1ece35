"""How many rows a ZeroDFL node shares: a fixed number, or a number that the node adapts. Pure.

The paper leaves the second to future work: a number "automatically adjusted based on dataset
properties, learning objectives, and communication constraints". This rule is fednode's: rows [0, s)
are shared and replaced, the others stay private. If a node's validation loss rose since its last
round, it shares one row less, else one row more: at least one, and at most what its byte budget
allows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from fednode.core.merge.numbers import ITEM_BYTES
from fednode.core.policy import NodeContext
from fednode.core.settings import Barrier
from fednode.core.types import EMPTY, MEASURE, Array, Job, Message, Tensors
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.state import ROWS, Memory


def most(config: ZeroDFLConfig, memory: Memory) -> int:
    """Return the most rows that a node may share: all, or as many as `bytes_per_round` allows."""
    rows, width = memory.tensors[ROWS].shape
    if not config.bytes_per_round:
        return int(rows)
    row = width * ITEM_BYTES[config.wire_dtype] * config.recipients
    return int(max(1, min(rows, config.bytes_per_round // row)))


def shared(config: ZeroDFLConfig, memory: Memory) -> int:
    """Return s, the number of rows that a node shares now."""
    if config.rows_shared == "auto":
        return most(config, memory) if memory.rows is None else memory.rows
    every = len(memory.tensors[ROWS])
    return every if config.rows_shared is None else min(config.rows_shared, every)


def adapt(config: ZeroDFLConfig, memory: Memory, metrics: Mapping[str, float]) -> None:
    """Adapt s to a round's validation loss; store the loss for the next round and for the gate."""
    loss = metrics.get("validation_loss")
    if loss is None:
        return
    if config.rows_shared == "auto":
        rows = shared(config, memory)
        if memory.loss is not None:
            rows += -1 if loss > memory.loss else 1
        memory.rows = min(max(rows, 1), most(config, memory))
    if config.rows_shared == "auto" or config.admit_rise is not None:
        memory.loss = loss


def drawn(config: ZeroDFLConfig, memory: Memory, generator: random.Random) -> dict[int, Array]:
    """Take the received rows for the exchanged positions from the pool: position -> row."""
    found = memory.pool.draw(shared(config, memory), generator, config.positions == "kept")
    memory.pool.grow_older()
    memory.givers = memory.pool.givers
    return found


def mixes_first(mode: Barrier) -> bool:
    """Tell whether received rows are merged before a round's tuning, not after it.

    In async mode no node waits for rows. Rows that arrive while this node stores its last round are
    in time for the next round. A merge right after the tuning would replace the newly tuned rows by
    rows of the round before, and nodes of equal speed would lose every second step. In sync
    mode the merge comes after the tuning, when the rows that the node waited for have arrived.
    """
    return mode == "async"


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


def take(config: ZeroDFLConfig, memory: Memory, base: Tensors, merged: Array) -> None:
    """Hold `base` with merged rows [m, width]."""
    memory.tensors = Tensors({**base, ROWS: merged})
    if config.optimizer == "reset":
        memory.carry = EMPTY


def fault(config: ZeroDFLConfig, memory: Memory, message: Message) -> str:
    """Say why a message's phase or rows do not fit; "" if they fit."""
    if message.phase == "done":
        return "" if not message.tensors else "phase 'done' carries no tensors"
    if message.phase != "prompts":
        return f"zerodfl has no phase {message.phase!r}"
    every, width = memory.tensors[ROWS].shape
    counts = range(1, every + 1)  # with "auto" each node has its own number
    if config.rows_shared != "auto":
        count = shared(config, memory)
        counts = range(count, count + 1) if count else range(0)
    if message.tensors.shapes in [{ROWS: (count, width)} for count in counts]:
        return ""
    shown = f"{ROWS}[{counts[-1] if counts else 0}, {width}]"
    return f"phase {message.phase!r} carries {shown} here, not {message.tensors!r}"
