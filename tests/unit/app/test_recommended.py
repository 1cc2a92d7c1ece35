"""The cases of `fednode init` name policies and tuning that there are."""

from __future__ import annotations

import pytest

from fednode import registry
from fednode.app.recommended import CASES, RECOMMENDED, Recommendation
from fednode.commands.init import init


@pytest.mark.parametrize("case", [*CASES.values(), RECOMMENDED])
def test_a_case_is_a_policy_with_figures_that_speak_for_it(case: Recommendation) -> None:
    assert case.policy in registry.names()
    assert case.why.startswith(f"Recommended: {case.policy}. ")
    assert "95 % interval" in case.why


def test_init_offers_each_case() -> None:
    (option,) = (option for option in init.params if option.name == "others")
    assert set(option.type.choices) == set(CASES)  # type: ignore[attr-defined]
