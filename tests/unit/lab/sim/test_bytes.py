"""Bytes: the meter counts as ZeroDFL's paper does, and each method as its own paper does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fednode import registry
from fednode.core.rounds.exchange import participating
from fednode.core.settings import LAN, RoundSettings, StartSettings
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.diprompt import DiPrompTConfig
from fednode.policies.feddpt import FedDPTConfig
from fednode.policies.fedtpg import FedTPGConfig
from fednode.policies.promptfl import PromptFLConfig
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.transports.framing import Traffic

GIB = 2**30
Shapes = Mapping[str, tuple[int, ...]]
STILL = replace(LAN, probe_interval_s=1e6, sync_interval_s=1e6)


def run(nodes: int, rounds: int, recipients: int) -> Traffic:
    """Return the meter of a whole run with prompts of 4 x 512 in float16, everyone up."""
    world = World(1, memorable=False)
    start = StartSettings(peers=nodes - 1)
    settings = RoundSettings("async", max=rounds, start=start)
    plan = Setup(
        policy=ZeroDFL,
        config=ZeroDFLConfig(recipients=recipients),
        rounds=settings,
        seed=1,
        membership=STILL,
    )
    names = [f"node-{at:02d}" for at in range(nodes)]
    world.populate(plan, {name: QuadraticLearner(name, 4, 512) for name in names})
    assert world.run(world.finished, 1e6)
    return world.traffic["prompts"]


@pytest.mark.parametrize("recipients", [1, 5, 11])
def test_payload_is_rounds_by_nodes_by_recipients_by_bytes(recipients: int) -> None:
    meter = run(12, 10, recipients)
    assert meter.messages == 10 * 12 * recipients
    assert meter.payload == 10 * 12 * recipients * 4 * 512 * 2
    assert meter.payload < meter.serialized < meter.wire <= 1.10 * meter.payload


@pytest.mark.slow
def test_the_papers_run_takes_a_seventh_of_what_the_paper_counts() -> None:
    """59 clients, 500 rounds, S = 5: the paper counts 3.94 GiB, and 467 for FedTPG."""
    meter = run(59, 500, 5)
    assert meter.payload == 500 * 59 * 5 * 4 * 512 * 2 <= 0.6 * GIB
    assert meter.wire <= 1.10 * meter.payload


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
