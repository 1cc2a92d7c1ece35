"""Which towers take the fast path; test_whole.py and test_text.py compare it with open_clip."""

from __future__ import annotations

from typing import Any

from fednode.clip.causal import Causal
from fednode.clip.whole import Whole

FAST = {"CLIP", "MetaCLIP 2", "MetaCLIP 2 with mT5's tokenizer"}


def test_causal_towers_take_the_fast_path_and_the_others_their_own_modules(twin: Any) -> None:
    kind, _, _, tower = twin
    assert type(tower._kind) is (Causal if kind in FAST else Whole)
    assert tower.layers == 3
    assert not tower.fault
