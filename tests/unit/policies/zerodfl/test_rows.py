"""Which rows a node shares, takes and accepts, by value."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fednode.core.types import EMPTY, Tensors
from fednode.policies.zerodfl import rows
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.policies.zerodfl.pool import Entry, Pool
from fednode.policies.zerodfl.state import ROWS, Memory
from tests.unit.policies.scenes import CARRY, OWN, said


def memory(*senders: str) -> Memory:
    """Return the memory of a node that holds OWN, with a pool of these senders' rows."""
    made = Memory(tensors=OWN, pool=Pool(1), carry=CARRY)
    for sender in senders:
        made.pool.add(Entry(sender, 1, said(sender).message.tensors[ROWS]))
    return made


@pytest.mark.parametrize(("setting", "count"), [(None, 4), (0, 0), (3, 3), (4, 4), (9, 4)])
def test_as_many_rows_are_shared_as_are_set_and_no_more_than_there_are(
    setting: int | None, count: int
) -> None:
    assert rows.shared(ZeroDFLConfig(rows_shared=setting), memory()) == count


def test_only_shared_rows_are_taken_and_the_pool_is_used_up() -> None:
    held = memory("b", "c")
    chosen = rows.drawn(ZeroDFLConfig(rows_shared=2), held, random.Random(1))
    assert sorted(chosen) == [0, 1]
    assert {int(row[0] // 100) for row in chosen.values()} == {1, 2}
    assert held.givers == ("b", "c")
    assert len(held.pool) == 0


@pytest.mark.parametrize(("setting", "carry"), [("keep", CARRY), ("reset", EMPTY)])
def test_merged_rows_keep_or_reset_the_momentum(setting: str, carry: Tensors) -> None:
    held = memory()
    merged = np.full((4, 2), 7.0, dtype=np.float32)
    rows.take(ZeroDFLConfig(optimizer=setting), held, OWN, merged)  # type: ignore[arg-type]
    assert held.tensors[ROWS].tolist() == merged.tolist()
    assert held.carry == carry


@pytest.mark.parametrize("merges", [True, False])
def test_peers_count_only_if_their_rows_are_held(merges: bool) -> None:
    held, config = memory("b", "c"), ZeroDFLConfig()
    rows.drawn(config, held, random.Random(1))
    rows.take(config, held, OWN, np.full((4, 2), 7.0, dtype=np.float32) if merges else None)
    assert held.givers == (("b", "c") if merges else ())


@pytest.mark.parametrize("shared", [1, 3, None])
def test_rows_of_another_number_or_width_are_refused(shared: int | None) -> None:
    config, held = ZeroDFLConfig(rows_shared=shared), memory()
    count = 4 if shared is None else shared
    whole = said("b").message
    fits = replace(whole, tensors=Tensors({ROWS: whole.tensors[ROWS][:count]}))
    assert rows.fault(config, held, fits) == ""
    for shape in ((count + 1, 2), (count - 1, 2), (count, 1)):
        wrong = Tensors({ROWS: np.ones(shape, dtype=np.float32)})
        text = rows.fault(config, held, replace(whole, tensors=wrong))
        assert f"context[{count}, 2] here, not" in text
    assert rows.fault(config, held, replace(whole, tensors=EMPTY))


def test_a_node_that_shares_no_row_accepts_none() -> None:
    config, held = ZeroDFLConfig(rows_shared=0), memory()
    nothing = np.zeros((0, 2), dtype=np.float32)
    for tensors in (OWN, Tensors({ROWS: nothing})):
        assert rows.fault(config, held, replace(said("b").message, tensors=tensors))


def test_a_marker_carries_nothing_and_no_other_phase_is_known() -> None:
    held, done = memory(), said("b", "done").message
    assert rows.fault(ZeroDFLConfig(), held, done) == ""
    assert rows.fault(ZeroDFLConfig(), held, replace(done, tensors=OWN)) == (
        "phase 'done' carries no tensors"
    )
    assert rows.fault(ZeroDFLConfig(), held, replace(done, phase="want")) == (
        "zerodfl has no phase 'want'"
    )


def test_a_negative_number_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.rows_shared is -1; it must be at least 0"):
        ZeroDFLConfig(rows_shared=-1)
