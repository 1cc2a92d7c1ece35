"""Fed-DPT's arrays: which there are, and which of them a node of a domain trains."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.feddpt import FedDPTConfig

TEXTS, LOOKS = {"text.photo", "text.art"}, {"visual.photo", "visual.art"}


def config(**set_: Any) -> FedDPTConfig:
    return FedDPTConfig(domains=("photo", "art"), **set_)


def test_slots_stand_in_the_order_of_the_domains() -> None:
    assert config().text_names == ("text.photo", "text.art")
    assert config().visual_names == ("visual.photo", "visual.art")


@pytest.mark.parametrize(
    ("components", "texts", "looks"),
    [("full", TEXTS, LOOKS), ("visual", set(), LOOKS), ("text", {"text.shared"}, set()),
     ("agnostic", {"text.shared"}, LOOKS)],
)  # fmt: skip
def test_each_ablation_has_its_slots(components: Any, texts: set[str], looks: set[str]) -> None:
    made = config(components=components)
    assert set(made.text_names) == texts
    assert set(made.visual_names) == looks


@pytest.mark.parametrize(
    ("set_", "wanted"),
    [
        ({}, {"text.art", *LOOKS}),
        ({"text": "train_all"}, TEXTS | LOOKS),
        ({"visual": "split"}, {"text.art", "visual.art"}),
        ({"visual": "split_ema"}, {"text.art", "visual.art"}),
        ({"components": "text"}, {"text.shared"}),
        ({"components": "agnostic"}, {"text.shared", *LOOKS}),
    ],
)
def test_a_node_trains_its_own_slots_and_those_without_an_owner(
    set_: dict[str, Any], wanted: set[str]
) -> None:
    assert config(**set_).trained("art") == wanted
