"""What a state directory is tied to, and what a later start may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.plan import free_facts, make
from fednode.settings.faults import GONE
from tests.unit.commands.run import PEERS

DOMAINS = ("policy.domains=[photo, sketch]", "data.domain=photo")
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("policy.name=zerodfl",), {"rounds.max"}),
        (("policy.name=promptfl",), {"rounds.max"}),
        (("policy.name=diprompt", *DOMAINS), NONE),
        (("policy.name=diprompt", "policy.momentum=false", *DOMAINS), {"rounds.max"}),
        (("policy.name=trip",), NONE),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_more_rounds_may_follow_unless_averages_weigh_rounds_by_their_number(
    tmp_path: Path, flags: tuple[str, ...], wanted: frozenset[str]
) -> None:
    peers = tmp_path / "peers.yaml"
    peers.write_text(PEERS)
    plan = make(peers, None, "a", ("rounds.max=9", *flags), tmp_path / "state")
    assert free_facts(plan) == wanted | GONE
