"""What a state directory is tied to, and what a later start may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.plan import free_facts, make, placed
from fednode.data.base import DataSettings, PartitionSettings
from fednode.errors import ConfigError
from fednode.settings.faults import GONE
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Settings
from tests.unit.commands.run import PEERS, Fednode

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


def test_a_node_s_share_is_its_place_in_peers_yaml() -> None:
    peers = Peers("m", tuple(PeerEntry(name, "") for name in "zab"))
    settings = Settings(data=DataSettings(partition=PartitionSettings(how="classes")))
    assert placed(settings, peers, "a").data.partition == PartitionSettings("classes", 1, 3)
    fixed = Settings(data=DataSettings(partition=PartitionSettings("classes", 0, 9)))
    assert placed(fixed, peers, "a") == fixed
    assert placed(Settings(), peers, "a") == Settings()


def test_what_a_plan_takes_from_where(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("name: b\nstate_dir: there\n")
    plan = make(peers, config, None, (), None)
    assert (plan.name, plan.state, plan.mode) == ("b", Path("there"), "async")
    assert make(peers, config, "a", (), Path("here")).state == Path("here")
    config.write_text("name: b\n")
    expected = tmp_path / ".local/state/fednode/clinic/b"
    assert make(peers, config, None, (), None).state == expected
    with pytest.raises(ConfigError, match=r"topology.kind is 'ring'"):
        make(peers, config, None, ("policy.name=promptfl", "topology.kind=ring"), None)
