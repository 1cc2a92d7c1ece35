"""DiPrompT's settings: which prompts there are, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.diprompt import DiPrompTConfig, slot

DOMAINS = ("photo", "art_painting")


@pytest.mark.parametrize(
    ("prompts", "names"),
    [
        ("both", ("global", "domain.photo", "domain.art_painting")),
        ("global", ("global",)),
        ("domains", ("domain.photo", "domain.art_painting")),
    ],
)
def test_the_exchanged_prompts_are_those_of_table_3(prompts: Any, names: tuple[str, ...]) -> None:
    assert DiPrompTConfig(domains=DOMAINS, prompts=prompts).names == names
    assert slot("photo") == "domain.photo"


def test_the_query_moves_if_any_term_of_its_loss_is_on() -> None:
    off: dict[str, Any] = {"query_mse": False, "query_kl": False, "query_supervised": 0.0}
    assert not DiPrompTConfig(domains=DOMAINS, **off).moves_query
    for term in ({"query_mse": True}, {"query_kl": True}, {"query_supervised": 0.5}):
        assert DiPrompTConfig(domains=DOMAINS, **{**off, **term}).moves_query


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"domains": ()}, "policy.domains names 0 domains"),
        ({"domain_weight": -1.0}, "policy.domain_weight is -1"),
        ({"query_length": 0}, "policy.query_length is 0; it must be at least 1"),
        ({"beta": 0.0}, "policy.beta is 0; it must be above 0"),
        ({"wire_dtype": "int8"}, "policy.wire_dtype is int8"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DiPrompTConfig(**{"domains": DOMAINS, **set_})
