"""PLAN's settings: which prompts an aggregator merges, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.plan import PlanConfig


@pytest.mark.parametrize(
    ("aggregators", "names"),
    [("both", ("text", "visual")), ("text", ("text",)), ("visual", ("visual",)), ("none", ())],
)
def test_an_aggregator_merges_the_towers_that_table_6_names(
    aggregators: Any, names: tuple[str, ...]
) -> None:
    assert PlanConfig(aggregators=aggregators).aggregated == names


def test_the_words_before_a_class_are_equation_2_s_or_none() -> None:
    assert PlanConfig().words == "a photo of a"
    assert PlanConfig(description="name").words == ""


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"kl": -1.0}, "policy.kl is -1; it must be at least 0"),
        ({"depth": -1}, "policy.depth is -1; it must be at least 0"),
        ({"reduction": 0}, "policy.reduction is 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PlanConfig(**set_)
