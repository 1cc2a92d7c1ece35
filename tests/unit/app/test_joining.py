"""What a newcomer takes from the node that made its link, and what it says of itself."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fednode.app import joining
from fednode.app.admission import right_of
from fednode.app.founding import mesh_key_of
from fednode.app.joining import (
    Invitation,
    ask,
    forgotten,
    images_line,
    leaves,
    model_line,
    peers_of,
    settings_text,
    strange,
    take_lease,
    write,
)
from fednode.app.plan import NodePlan, learner_of, make
from fednode.core.types import Tensors
from fednode.data.base import Image, NodeData, Split
from fednode.errors import ConfigError, IdentityError, Unreachable
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.enrol import sponsor
from fednode.identity.identity import Identity
from fednode.identity.lease import Statement
from fednode.learn.learner import Learner
from fednode.settings.agreed import taken
from fednode.settings.peers import load_peers
from fednode.transports.opening import open_directly
from fednode.wire.gen.introducer_pb2 import JudgeReply
from tests.unit.app.founders import MESH, founded, identity_of, images, link_to
from tests.unit.identity.people import LISTED, MESH_KEY, NOW, STRANGER

AWAY = "127.0.0.1:9"
PROMPTS = {"policy": {"name": "promptfl"}, "rounds": {"max": 3}}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    return founded(tmp_path, monkeypatch)


def invitation(plan: NodePlan, settings: object) -> Invitation:
    link = link_to(plan, "b")
    right = Statement(kind="sponsor", mesh=MESH, name="a", id=identity_of(plan).id, issued=NOW)
    return Invitation(
        link=link,
        admitter=sponsor(plan.address, link.made_by),
        right=right,
        settings=taken(json.dumps(settings)),
        members=("a",),
        model="m",
    )


def test_the_files_of_a_newcomer_are_a_node_of_the_mesh(tmp_path: Path, plan: NodePlan) -> None:
    told = invitation(plan, PROMPTS)
    text = settings_text(told, images(tmp_path / "images"), None)
    write(tmp_path / "b", text, peers_of(told, "127.0.0.1:9"))
    made = make(tmp_path / "b/peers.yaml", tmp_path / "b/node.yaml", None, (), None)
    assert (made.name, made.address, made.settings.rounds.max) == ("b", "127.0.0.1:9", 3)
    assert load_peers(tmp_path / "b/peers.yaml").sponsors == ("a",)
    assert made.state == plan.state.parent / "b"
    said = leaves(made, learner_of(made.settings, "b"))
    assert said.startswith("at most ")
    assert said.endswith("numbers a round, 1 class name and the number of images to train on (32)")


def test_images_that_are_kept_from_training_are_counted() -> None:
    def split(count: int) -> Split:
        return Split(("one",), tuple(Image(Path(str(at)), 0) for at in range(count)))

    data = NodeData(train=split(1108), validation=split(0), own=split(24))
    assert images_line(data) == "1,108 to train on, 24 kept from training for tests"
    data = NodeData(train=split(5), validation=split(2), own=split(0))
    assert images_line(data) == "5 to train on, 2 kept from training for validation"


def test_class_sums_are_said_for_each_class(tmp_path: Path, plan: NodePlan) -> None:
    told = invitation(plan, {"policy": {"name": "gda"}})
    text = settings_text(told, images(tmp_path / "images"), None)
    write(tmp_path / "b", text, peers_of(told, "127.0.0.1:9"))
    made = make(tmp_path / "b/peers.yaml", tmp_path / "b/node.yaml", None, (), None)
    said = leaves(made, learner_of(made.settings, "b"))
    assert said.startswith("9 numbers for each of 2 classes, 2 class names")
    few = SimpleNamespace(
        classes=("cup", "dog"),
        samples=20,
        told=(("dog",), 17),
        initial=lambda _: Tensors({"rows": np.zeros((0, 9))}),
    )
    said = leaves(made, cast("Learner", few))
    assert said.endswith("; nothing of cup, with fewer than 5 images to train on")


def test_the_model_is_shown_by_its_fingerprint_whoever_loads_it_first(plan: NodePlan) -> None:
    told = invitation(plan, PROMPTS)
    assert model_line(told, "") == "m"
    early = "m, fingerprint 0123456789ab here; a still loads its own, and nodes compare them"
    assert model_line(told, "0123456789abcdef") == early
    ready = replace(told, model="m, fingerprint 0123456789ab")
    assert model_line(ready, "0123456789abcdef") == ready.model
    with pytest.raises(ConfigError, match="the one here has ffff: take the same file"):
        model_line(ready, "ffff")


def test_a_model_that_each_site_has_must_be_given(tmp_path: Path, plan: NodePlan) -> None:
    data = images(tmp_path / "images")
    for model, wanted in (({"name": "local-dir:/x"}, "local-dir:FOLDER"),
                          ({"name": "ViT-B-16", "pretrained": "/x.pt"}, "FILE")):  # fmt: skip
        told = invitation(plan, {**PROMPTS, "model": model})
        with pytest.raises(ConfigError, match=f"give yours with --model {wanted}; its digest"):
            settings_text(told, data, None)
        assert "my-model" in settings_text(told, data, "my-model")


@pytest.mark.parametrize(
    ("ahead_h", "said"),
    [
        (240, "is 240 h ahead of this machine's.*the link; it holds still"),
        (-9, "is 9 h behind this machine's"),
        (1, "cannot be believed"),  # the clocks agree; and this answer shows no right to admit
        (None, "cannot be believed"),  # an older version does not tell its clock
    ],
)
async def test_clocks_are_compared_before_a_link_is_used(
    plan: NodePlan, monkeypatch: pytest.MonkeyPatch, ahead_h: float | None, said: str
) -> None:
    async def judged(*_: object) -> JudgeReply:
        return JudgeReply(clock=None if ahead_h is None else time.time() + 3600 * ahead_h + 60)

    monkeypatch.setattr(joining, "judge_token", judged)
    with pytest.raises(IdentityError, match=said):
        await joining.ask(link_to(plan, "b"), identity_of(plan), "127.0.0.1:9", open_directly)


def test_a_key_of_another_mesh_with_the_same_name_is_noticed(plan: NodePlan) -> None:
    link, own = link_to(plan, "b"), identity_of(plan)
    assert not strange(own, link)
    assert strange(own, replace(link, mesh_key=LISTED["a"]))


def answers(monkeypatch: pytest.MonkeyPatch, *replies: JudgeReply | Exception) -> None:
    """Let the nodes at the addresses of a link answer in turn."""
    left = list(replies)

    async def judge(*_: object) -> JudgeReply:
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(joining, "judge_token", judge)


def told(right: bytes) -> JudgeReply:
    return JudgeReply(sponsor=right, settings=json.dumps(PROMPTS).encode())


@pytest.mark.parametrize(
    "wrong", [{"name": "z", "id": LISTED["b"]}, {"mesh": "other"}, {"kind": "lease"}]
)
async def test_the_right_to_admit_is_of_the_mesh_and_of_the_node_that_made_the_link(
    tmp_path: Path, plan: NodePlan, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    link, good = link_to(plan, "b"), leases.peek(right_of(plan.state))
    answers(monkeypatch, told(leases.sign(mesh_key_of(plan), replace(good, **wrong))))
    with pytest.raises(IdentityError, match="it shows no right to admit to 'ward'"):
        await ask(link, Identity(tmp_path / "b", MESH, "b"), AWAY, open_directly)


@pytest.mark.parametrize("fault", [IdentityError("another key"), Unreachable("nobody answers")])
async def test_a_stranger_at_one_address_of_a_link_does_not_end_the_search(
    tmp_path: Path, plan: NodePlan, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    link = link_to(plan, "b")
    link = replace(link, addresses=("127.0.0.1:8", *link.addresses))
    answers(monkeypatch, fault, told(right_of(plan.state)))
    found = await ask(link, Identity(tmp_path / "b", MESH, "b"), AWAY, open_directly)
    assert found.admitter.address == link.addresses[1]


def test_a_folder_of_another_mesh_of_the_name_is_not_joined_into_again(
    tmp_path: Path, plan: NodePlan
) -> None:
    folder, nowhere = tmp_path / MESH, tmp_path / "nowhere"
    link = replace(link_to(plan, "b"), name="a")
    assert forgotten(folder, nowhere, link)
    other = keys.written(MESH_KEY.public_key())
    assert not forgotten(folder, nowhere, replace(link, mesh_key=other))
    assert not forgotten(folder, nowhere, replace(link, mesh="other"))
    assert not forgotten(folder, nowhere, replace(link, name="b"))


async def test_a_lease_that_the_mesh_key_did_not_vouch_for_is_refused(
    tmp_path: Path, plan: NodePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Identity(tmp_path / "b", MESH, "b")

    async def forged(identity: Identity, *_: object) -> None:
        own = Statement(kind="lease", mesh=MESH, name="b", id=identity.id, issued=NOW)
        identity.take_lease(leases.sign(STRANGER, own))

    monkeypatch.setattr(joining, "enrol", forged)
    with pytest.raises(IdentityError, match="not signed by the key that it should be"):
        await take_lease(invitation(plan, PROMPTS), new, AWAY, open_directly)
