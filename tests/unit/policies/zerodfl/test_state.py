"""ZeroDFL's state: what it shows to people."""

from __future__ import annotations

import numpy as np

from fednode.core.types import EMPTY
from fednode.policies.zerodfl.pool import Entry, Pool
from fednode.policies.zerodfl.state import Memory


def test_it_shows_choices_of_each_peer_and_the_rows_that_wait() -> None:
    made = Memory(tensors=EMPTY, pool=Pool(2), chosen={"c": 3, "b": 2})
    assert made.shown() == {"chosen": {"b": 2, "c": 3}}
    for sender, number, rows in (("d", 12, 1), ("c", 11, 4)):
        made.pool.add(Entry(sender, number, np.zeros((rows, 8), np.float32)))
    assert made.shown()["pool"] == "c (round 11, 4 rows), d (round 12, 1 rows)"
