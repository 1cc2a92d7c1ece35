"""What a state directory is tied to, and what a later start may change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fednode.app.plan import (
    NodePlan,
    facts_of,
    free_facts,
    learner_of,
    make,
    placed,
    sums_fault,
    sums_warning,
)
from fednode.core.facts import differences
from fednode.data.base import DataSettings, PartitionSettings
from fednode.errors import ConfigError
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Settings, chosen_of
from tests.unit.commands.run import Fednode, planned
from tests.unit.identity.people import SmallMesh

DOMAINS = ("policy.domains=[photo, sketch]", "data.domain=photo")
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("policy.name=zerodfl",), {"rounds.max"}),
        (("policy.name=promptfl",), {"rounds.max"}),
        (("policy.name=diprompt", *DOMAINS), NONE),
        (("policy.name=diprompt", "policy.momentum=false", *DOMAINS), {"rounds.max"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_more_rounds_may_follow_unless_averages_weigh_rounds_by_their_number(
    tmp_path: Path, flags: tuple[str, ...], wanted: frozenset[str]
) -> None:
    plan = planned(tmp_path, "rounds.max=9", *flags)
    topology = {"topology.kind", "topology.degree"}
    assert free_facts(plan) == wanted | topology | {"tuning.template"}


def test_a_node_s_share_is_its_place_in_peers_yaml() -> None:
    peers = Peers("m", tuple(PeerEntry(name, "") for name in "zab"))
    settings = Settings(data=DataSettings(partition=PartitionSettings(how="classes")))
    assert placed(settings, peers, "a").data.partition == PartitionSettings("classes", 1, 3)
    fixed = Settings(data=DataSettings(partition=PartitionSettings("classes", 0, 9)))
    assert placed(fixed, peers, "a") == fixed
    assert placed(Settings(), peers, "a") == Settings()


@pytest.mark.parametrize(
    ("own", "other", "advertise", "remote"),
    [
        ("127.0.0.1:7101", "127.0.0.2:7102", None, False),
        ("127.0.0.1:7101", "localhost:7102", None, False),
        ("127.0.0.1:7101", "[::1]:7102", None, False),
        ("127.0.0.1:7101", "10.0.0.8:7102", None, True),
        ("10.0.0.7:7101", "10.0.0.7:7102", None, False),
        ("10.0.0.7:7101", "10.0.0.8:7102", None, True),
        ("clinic-a:7101", "clinic-b:7102", None, True),
        ("10.0.0.7:7101", "10.0.0.7:7102", "10.0.0.9:7101", True),
        ("", "10.0.0.8:7102", None, True),
        ("", "127.0.0.1:7102", None, False),
    ],
)
def test_a_mesh_is_remote_if_a_peer_is_on_another_machine(
    own: str, other: str, advertise: str | None, remote: bool
) -> None:
    """A node of a remote mesh waits without end for its peers (waiting.py)."""
    peers = Peers("m", (PeerEntry("a", own), PeerEntry("b", other)))
    plan = NodePlan("a", Settings(advertise=advertise), peers, Path())
    assert plan.remote == remote
    assert not NodePlan("a", Settings(), Peers("m", (PeerEntry("a", own),)), Path()).remote


def test_what_a_plan_takes_from_where(fednode: Fednode, peers: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("name: b\nstate_dir: there\n")
    plan = make(peers, config, None, (), None)
    assert (plan.name, plan.state, plan.mode) == ("b", Path("there"), "async")
    assert make(peers, config, "a", (), Path("here")).state == Path("here")
    config.write_text("name: b\n")
    expected = tmp_path / ".local/state/fednode/clinic/b"
    assert make(peers, config, None, (), None).state == expected


JUDGES = "judges by validation images, and data.validation is 0; keep a share"
CLOSED = "tuning.kind=closed-form"


@pytest.mark.parametrize(
    ("said", "flags", "mended"),
    [
        ("topology.kind is 'ring'; all nodes of", "topology.kind=ring", "policy.name=zerodfl"),
        ("the address 0.0.0.0:7191 of 'b' leaves this machine", "listen=0.0.0.0:7191", "listen="),
        (f"policy.admit_rise {JUDGES}", "policy.name=zerodfl policy.admit_rise=0.1", CLOSED),
        (f"guard.merged_rise {JUDGES}", "guard.merged_rise=0", "data.validation=0.2"),
        (f"guard.keep_best {JUDGES}", "guard.keep_best=true", CLOSED),
        # Messages of gda name the classes of a node (tests/simulation/test_names_stay.py).
        ("data.tell_classes is false, and policy gda matches", "policy.name=gda "
         "data.tell_classes=false", "policy.name=promptfl"),
        ("privacy.clip is 1, and policy gda sends sums", "policy.name=gda privacy.clip=1",
         "policy.name=promptfl"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_each_other_are_said(
    fednode: Fednode, peers: Path, said: str, flags: str, mended: str
) -> None:
    words = ("policy.name=promptfl", *flags.split())
    with pytest.raises(ConfigError, match=said):
        make(peers, None, "b", words, None)
    assert make(peers, None, "b", (*words, mended), None).name == "b"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("policy.name=gda",), None),
        (("policy.name=gda", "tuning.template=auto"), None),
        (("policy.name=gda", "tuning.template=an x-ray of {}"), "an x-ray of {}"),
        (("policy.name=fedclip",), None),
        (("policy.name=fedclip", "tuning.template=auto"), "a photo of a {}."),
        (("policy.name=gda", "tuning.template=a photo of a {}."), None),
        (
            ("policy.name=gda", "model.name=local-dir:x", "tuning.template=a photo of a {}."),
            "a photo of a {}.",
        ),
    ],
)
def test_nodes_must_have_the_same_hand_written_prompt(
    tmp_path: Path, flags: tuple[str, ...], said: str | None
) -> None:
    """A policy's own sentence is no fact; others are named."""
    words = ("rounds.max=9", "tuning.kind=closed-form")
    plan = planned(tmp_path, *words, *flags)
    learner = learner_of(plan.settings, "a")
    facts = facts_of(plan, learner)
    assert facts.get("tuning.template") == said
    others = [flag for flag in flags if not flag.startswith("tuning.template")]
    usual = facts_of(planned(tmp_path, *words, *others), learner)
    differ = differences({"a": facts, "b": usual})
    wanted = "" if said is None else f"tuning.template is {said} at 'a' and not set at 'b'"
    assert differ == wanted
    assert "tuning.template" in free_facts(plan)


class Counted:
    """A learner with so many images of each class."""

    def __init__(self, *counts: int) -> None:
        self.classes = tuple(f"c{at:04}" for at in range(len(counts)))
        self.samples = sum(counts)
        self.announced = self.classes[sum(count < 5 for count in counts) :], 0


@pytest.mark.parametrize(
    ("counts", "policy", "fault", "warning"),
    [
        ((3, 2), "gda", "", "None of this node's 2 classes has privacy.least_images (5) training"),
        ((3, 5), "gda", "", ""),
        ((), "gda", "", ""),
        ((3, 2), "promptfl", "", ""),
        ([9] * 4097, "gda", "4,097 classes, and a message names at most 4,096", "4,097 "),
        ([9] * 257, "gda", "", "This node has 257 classes, and policy.classes_max is 256"),
        ([9] * 256, "gda", "", ""),
    ],
)
def test_class_sums_that_cannot_be_sent_are_said_before_anything_is_sent(
    counts: Sequence[int], policy: str, fault: str, warning: str
) -> None:
    peers = Peers("m", tuple(PeerEntry(name, "") for name in "ab"))
    plan = NodePlan("a", Settings(policy=chosen_of({"name": policy})), peers, Path())
    learner: Any = Counted(*counts)
    for find, wanted in ((sums_fault, fault), (sums_warning, warning)):
        said = find(plan, learner)
        assert wanted in said
        assert bool(wanted) == bool(said)


def test_a_node_that_takes_no_connections_needs_relays(tmp_path: Path) -> None:
    peers = tmp_path / "peers.yaml"
    relays = 'relays: [{name: relay, address: "relay.example.org:443"}]\n'
    key = f"mesh_key: {SmallMesh().mesh_key_text}\n"
    listed = f'mesh: m\n{key}peers: [{{name: a, address: "10.0.0.1:7700"}}]\n'
    peers.write_text(listed)
    with pytest.raises(ConfigError, match=r"'a' is reached through relays .* lists none"):
        make(peers, None, "a", ("advertise=relay",), tmp_path / "state")
    peers.write_text(listed + relays)
    plan = make(peers, None, "a", ("advertise=relay",), tmp_path / "state")
    assert (plan.address, plan.listen, plan.remote) == ("relay", "relay", False)
    with pytest.raises(ConfigError, match=r"relay\.serve is true, and a relay needs keys"):
        make(peers, None, "a", ("advertise=relay", "relay.serve=true"), tmp_path / "state")
    both = make(peers, None, "a", ("listen=0.0.0.0:7700", "advertise=relay"), tmp_path / "state")
    assert (both.address, both.listen) == ("relay", "0.0.0.0:7700")


def test_a_node_is_named_by_a_word_a_variable_or_the_host(
    fednode: Fednode, peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "b")
    assert make(peers).name == "b"
    monkeypatch.setenv("FEDNODE_NAME", "a")
    assert (make(peers).name, make(peers, name="b").name) == ("a", "b")
    with pytest.raises(ConfigError, match=r"No peer is called 'z'.*there are a, b"):
        make(peers, name="z")


def test_who_is_not_listed_says_where_it_is_reached(fednode: Fednode, peers: Path) -> None:
    peers.write_text(
        f'mesh: m\nmesh_key: {SmallMesh("m").mesh_key_text}\npeers: [{{name: a, address: "h:1"}}]\n'
    )
    assert make(peers, name="new", flags=("advertise=127.0.0.1:9",)).address == "127.0.0.1:9"
    for name, said in (("new", "does not list 'new', so it must be"), ("New!", "name is 'New!'")):
        with pytest.raises(ConfigError, match=said):
            make(peers, name=name)


def test_a_certificate_names_the_node(tmp_path: Path) -> None:
    """Also under another --name, which is a fault, and another host name, which counts no more."""
    mesh, state = SmallMesh("m"), tmp_path / "state"
    peers = tmp_path / "peers.yaml"
    nodes = ", ".join(
        f'{{name: {name}, address: "10.0.0.1:77{at}"}}' for name, at in (("a", 1), ("b", 2))
    )
    peers.write_text(
        f"mesh: m\nmesh_key: {mesh.mesh_key_text}\npeers: [{nodes}]\n".replace(":771", ":7701")
    )
    mesh.write(state, "b")
    assert make(peers, None, None, (), state).name == "b"
    with pytest.raises(ConfigError, match="is for 'b', and --name says 'a'"):
        make(peers, None, "a", (), state)
