"""Settings of methods: the papers' values, what follows from them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.diprompt import DiPrompTConfig, slot
from fednode.policies.feddpt import FedDPTConfig
from fednode.policies.fedmaple import FedMaPLeConfig
from fednode.policies.fedotp import FedOTPConfig
from fednode.policies.fedpgp import FedPGPConfig
from fednode.policies.plan import PlanConfig
from fednode.policies.zerodfl import ZeroDFLConfig

DOMAINS = ("photo", "art_painting")
REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (DiPrompTConfig, {"domains": ()}, "policy.domains names 0 domains"),
    (DiPrompTConfig, {"domain_weight": -1.0}, "policy.domain_weight is -1"),
    (DiPrompTConfig, {"query_length": 0}, "policy.query_length is 0; it must be at least 1"),
    (DiPrompTConfig, {"beta": 0.0}, "policy.beta is 0; it must be above 0"),
    (DiPrompTConfig, {"wire_dtype": "int8"}, "policy.wire_dtype is int8"),
    (FedDPTConfig, {"domains": ()}, "policy.domains names 0 domains"),
    (FedDPTConfig, {"alpha": 1.1}, "policy.alpha is 1.1; it must be from 0 to 1"),
    (FedDPTConfig, {"temperature": 0.0}, "policy.temperature is 0; it must be above 0"),
    (FedDPTConfig, {"wire_dtype": "int8"}, "policy.wire_dtype is int8"),
    (FedDPTConfig, {"participants": -1}, "policy.participants"),
    (FedMaPLeConfig, {"depth": 0}, "policy.depth is 0; it must be at least 1"),
    (FedMaPLeConfig, {"participants": -1}, "policy.participants"),
    (FedOTPConfig, {"mass": 0.0}, "policy.mass is 0; it must be above 0 and at most 1"),
    (FedOTPConfig, {"mass": 1.5}, "policy.mass is 1.5"),
    (FedOTPConfig, {"epsilon": 0.0}, "policy.epsilon is 0; it must be above 0"),
    (FedPGPConfig, {"rank": 0}, "policy.rank is 0; it must be at least 1"),
    (FedPGPConfig, {"contrast": -1.0}, "policy.contrast is -1; it must be at least 0"),
    (FedPGPConfig, {"temperature": 0.0}, "policy.temperature is 0; it must be above 0"),
    (PlanConfig, {"kl": -1.0}, "policy.kl is -1; it must be at least 0"),
    (PlanConfig, {"depth": -1}, "policy.depth is -1; it must be at least 0"),
    (PlanConfig, {"reduction": 0}, "policy.reduction is 0; it must be at least 1"),
    (ZeroDFLConfig, {"recipients": 0}, "policy.recipients is 0; it must be at least 1"),
    (ZeroDFLConfig, {"admit_rise": -0.1}, "policy.admit_rise is -0.1; it must be at least 0"),
    (ZeroDFLConfig, {"rows_shared": -1}, "policy.rows_shared is -1; it must be at least 0"),
]


@pytest.mark.parametrize(("kind", "values", "text"), REFUSED)
def test_settings_out_of_range_are_a_sentence(
    kind: type, values: dict[str, Any], text: str
) -> None:
    domains = {"domains": DOMAINS} if kind in {DiPrompTConfig, FedDPTConfig} else {}
    with pytest.raises(ValueError, match=text):
        kind(**{**domains, **values})


def test_the_papers_values_are_the_defaults_and_edges_are_taken() -> None:
    feddpt = FedDPTConfig(domains=("photo",))
    assert (feddpt.alpha, feddpt.temperature, feddpt.components) == (0.99, 0.1, "full")
    assert (FedMaPLeConfig().depth, FedMaPLeConfig().weights) == (9, "equal")
    zerodfl = ZeroDFLConfig(recipients=1, admit_rise=0.0, rows_shared=0)
    assert (zerodfl.recipients, zerodfl.rows_shared) == (1, 0)


@pytest.mark.parametrize(
    ("prompts", "names"),
    [
        ("both", ("global", "domain.photo", "domain.art_painting")),
        ("global", ("global",)),
        ("domains", ("domain.photo", "domain.art_painting")),
    ],
)
def test_diprompts_prompts_are_those_of_its_table_3(prompts: Any, names: tuple[str, ...]) -> None:
    assert DiPrompTConfig(domains=DOMAINS, prompts=prompts).names == names
    assert slot("photo") == "domain.photo"


def test_diprompts_query_moves_if_any_term_of_its_loss_is_on() -> None:
    off: dict[str, Any] = {"query_mse": False, "query_kl": False, "query_supervised": 0.0}
    assert not DiPrompTConfig(domains=DOMAINS, **off).moves_query
    for term in ({"query_mse": True}, {"query_kl": True}, {"query_supervised": 0.5}):
        assert DiPrompTConfig(domains=DOMAINS, **{**off, **term}).moves_query


@pytest.mark.parametrize(
    ("aggregators", "names"),
    [("both", ("text", "visual")), ("text", ("text",)), ("visual", ("visual",)), ("none", ())],
)
def test_plans_aggregator_merges_the_towers_of_its_table_6(
    aggregators: Any, names: tuple[str, ...]
) -> None:
    assert PlanConfig(aggregators=aggregators).aggregated == names


def test_plans_words_before_a_class_are_its_equation_2_or_none() -> None:
    assert PlanConfig().words == "a photo of a"
    assert PlanConfig(description="name").words == ""
