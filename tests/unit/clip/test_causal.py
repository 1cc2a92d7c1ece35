"""Which towers take the fast path; test_hooked_text.py compares it with open_clip."""

from __future__ import annotations

from typing import Any

from fednode.clip.hooked_text import HookedTextEncoder
from fednode.clip.prefix_text import PrefixTextEncoder

FAST = {"CLIP", "MetaCLIP 2", "MetaCLIP 2 with mT5's tokenizer"}


def test_causal_towers_take_the_fast_path_and_the_others_their_own_modules(twin: Any) -> None:
    kind, _, _, tower = twin
    assert type(tower._kind) is (PrefixTextEncoder if kind in FAST else HookedTextEncoder)
    assert tower.layers == 3
    assert not tower.fault
