"""Two daemons that share a GPU: they load, train, exchange, merge and measure.

On a CPU the same run is a slow test.
"""

from __future__ import annotations

from typing import Any

import pytest

from fednode.observe.client import Client
from tests.e2e.test_two_daemons import Pair, pair

__all__ = ["pair"]
pytestmark = pytest.mark.e2e
ROUNDS = 2


def finished(reply: Any) -> bool:
    return bool(reply.life == "finished")


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("policy", ["promptfl", "feddpt", "diprompt"])
async def test_two_daemons_share_a_device(pair: Pair, policy: str, device: str) -> None:
    words = [
        "tuning.kind=torch", f"model.device={device}", "tuning.gpu_share=0.4",
        f"policy.name={policy}", f"rounds.max={ROUNDS}", "data.halves=true", "data.shots=2",
        f"cache.folder={pair.folder / 'cache'}",
    ]  # fmt: skip
    domains = policy in {"feddpt", "diprompt"}
    words += ["policy.domains=[x, y]"] if domains else []

    def flags(domain: str) -> list[str]:
        own = [*words, *([f"data.domain={domain}"] if domains else [])]
        return [word for one in own for word in ("--set", one)]

    async with (
        Client() as client,
        pair.running("a", *flags("x")),
        pair.running("b", *flags("y")),
    ):
        for name in "ab":
            reply = await pair.until(client, name, finished)
            assert (reply.rounds_merged, reply.rounds_run) == (ROUNDS, ROUNDS)
