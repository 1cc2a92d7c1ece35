"""The byte meter counts as ZeroDFL's paper does: rounds * clients * recipients * message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.settings import LAN, RoundSettings, StartSettings
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.transports.framing import Traffic

GIB = 2**30
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
