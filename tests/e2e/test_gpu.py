"""Two daemons that share a GPU: they load, train, exchange, merge and measure.

On a CPU the same run is a slow test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemons import Nodes, finished

pytestmark = pytest.mark.e2e
ROUNDS = 2


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("policy", ["promptfl", "feddpt", "diprompt"])
async def test_two_daemons_share_a_device(here: Path, policy: str, device: str) -> None:
    domains = policy in {"feddpt", "diprompt"}
    common = [
        f"model.device={device}", "tuning.gpu_share=0.4", "membership.preset=local",
        f"policy.name={policy}", f"rounds.max={ROUNDS}", "data.halves=true", "data.shots=2",
        f"cache.folder={here / 'cache'}", *(["policy.domains=[x, y]"] if domains else []),
    ]  # fmt: skip
    nodes = Nodes(here, "ab", tuple(w for one in common for w in ("--set", one)), tls=False)
    a, b = (("--set", f"data.domain={one}") if domains else () for one in "xy")
    async with nodes.running("a", *a), nodes.running("b", *b):
        for name in "ab":
            reply = await nodes.until(name, finished)
            assert (reply.rounds_merged, reply.rounds_run) == (ROUNDS, ROUNDS)
