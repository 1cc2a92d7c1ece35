"""The cases of `fednode init` name policies and tuning that there are, as README shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fednode import registry
from fednode.app.cases import CASES, RECOMMENDED, Recommendation
from fednode.commands.init import init
from fednode.learn.settings import TuningSettings

README = (Path(__file__).parents[3] / "README.md").read_text()


@pytest.mark.parametrize("case", [*CASES.values(), RECOMMENDED])
def test_a_case_is_a_policy_with_settings_of_tuning(case: Recommendation) -> None:
    assert case.policy in registry.names()
    assert TuningSettings(**case.tuning).batch_size == 32


def test_init_offers_each_case() -> None:
    (option,) = (one for one in init.params if one.name == "others")
    assert set(option.type.choices) == set(CASES)  # type: ignore[attr-defined]


def test_readme_says_which_policy_a_case_takes() -> None:
    named = {"promptfl": "PromptFL", "fedpgp": "FedPGP"}
    for name, case in CASES.items():
        (said,) = re.findall(rf"`--others {name}`.*?take[s]? (\w+)", README, re.DOTALL)[:1]
        assert said == named[case.policy]
