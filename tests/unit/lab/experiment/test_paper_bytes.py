"""Bytes as each method's paper counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fednode import registry
from fednode.core.rounds.exchange import participating
from fednode.policies.diprompt import DiPrompTConfig
from fednode.policies.feddpt import FedDPTConfig
from fednode.policies.fedtpg import FedTPGConfig
from fednode.policies.promptfl import PromptFLConfig
from fednode.policies.zerodfl import ZeroDFLConfig

Shapes = Mapping[str, tuple[int, ...]]


def paper_bytes(policy: str, config: Any, shapes: Shapes, rounds: int, clients: int) -> int | None:
    part = participating(config, clients)
    return registry.policy(policy).paper_bytes(config, shapes, rounds, part)


def test_the_papers_way_to_count_bytes() -> None:
    """ViT-B/16; ZeroDFL and FedTPG as in ZeroDFL's paper (figure 2: 4 GB and 467 GB)."""
    context = {"context": (4, 512)}
    assert paper_bytes("zerodfl", ZeroDFLConfig(), context, 500, 59) == 500 * 59 * 5 * 28 * 1024
    assert paper_bytes("local", None, context, 500, 59) is None
    assert paper_bytes("promptfl", PromptFLConfig(), context, 3, 2) == 3 * 2 * 2 * 2048 * 4
    five = PromptFLConfig(participants=5)
    assert paper_bytes("promptfl", five, context, 3, 20) == 3 * 5 * 2 * 2048 * 4
    fedtpg = paper_bytes("fedtpg", FedTPGConfig(), {"net": (4_206_080,)}, 500, 59)
    assert fedtpg is not None
    assert fedtpg / 2**30 == pytest.approx(462.2, abs=0.1)
    names = ("a", "b", "c", "d", "e", "f")
    shapes: dict[str, tuple[int, ...]] = {f"text.{name}": (16, 512) for name in names}
    shapes |= {f"visual.{name}": (768,) for name in names}
    up = 32_768 + 6 * 3072
    down = 6 * 32_768 + 6 * 3072
    config = FedDPTConfig(domains=names)
    assert paper_bytes("feddpt", config, shapes, 1, 6) == 6 * (up + down)
    drawn = DiPrompTConfig(domains=names, participants=4)
    assert paper_bytes("diprompt", drawn, context, 10, 6) == 10 * 4 * 2048 * 4
    plan = {"text": (12, 8, 512), "visual": (12, 8, 768), "aggregator.x": (5_269_248,)}
    stage_up, each = 122_880 * 4, 5_269_248 * 4
    expected = 3 * (stage_up + each + stage_up + 3 * stage_up + each)
    assert paper_bytes("plan", None, plan, 1, 3) == expected
