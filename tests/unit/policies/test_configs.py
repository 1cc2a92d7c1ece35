"""Settings of methods: the papers' values, what follows from them, and what is refused."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.clip.settings import PLAIN
from fednode.errors import ConfigError
from fednode.learn.settings import TuningSettings
from fednode.policies import domains
from fednode.policies.diprompt import DiPrompTConfig, slot
from fednode.policies.feddpt import FedDPTConfig
from fednode.policies.fedmaple import FedMaPLeConfig
from fednode.policies.fedotp import STEPS, THRESHOLD, FedOTPConfig
from fednode.policies.fedpgp import FedPGPConfig
from fednode.policies.gda import GDAConfig
from fednode.policies.plan import PlanConfig
from fednode.policies.zerodfl import ZeroDFLConfig
from tests.unit.policies.tiny import tuning

DOMAINS = ("photo", "art_painting")
REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (DiPrompTConfig, {"domains": ()}, "policy.domains names 0 domains"),
    *(
        (FedDPTConfig, {"domains": (name,)}, f"names {name!r}; use small letters")
        for name in ("Photo", "a b", "_x", "-x", "", "a" * 41, "é", "a\n")
    ),
    (FedDPTConfig, {"domains": ("photo", "art", "photo")}, "names 'photo' twice"),
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
    (GDAConfig, {"classes_max": 0}, "policy.classes_max is 0; it must be from 1 to 4096"),
    (GDAConfig, {"ratio": -1.0}, "policy.ratio is -1; it must be at least 0"),
    (GDAConfig, {"temperature": 0.0}, "policy.temperature is 0; it must be at least 0.1"),
    (ZeroDFLConfig, {"recipients": 0}, "policy.recipients is 0; it must be at least 1"),
    (ZeroDFLConfig, {"admit_rise": -0.1}, "policy.admit_rise is -0.1; it must be at least 0"),
    (ZeroDFLConfig, {"rows_shared": -1}, "policy.rows_shared is -1; it must be at least 0"),
]


def test_settings_out_of_range_are_a_sentence() -> None:
    for kind, values, text in REFUSED:
        names = {"domains": DOMAINS} if kind in {DiPrompTConfig, FedDPTConfig} else {}
        with pytest.raises(ValueError, match=re.escape(text)):
            kind(**{**names, **values})


def test_the_papers_values_are_the_defaults_and_edges_are_taken() -> None:
    feddpt = FedDPTConfig(domains=("photo",))
    assert (feddpt.alpha, feddpt.temperature, feddpt.components) == (0.99, 0.1, "full")
    assert (FedMaPLeConfig().depth, FedMaPLeConfig().weights) == (9, "equal")
    fedpgp, fedotp = FedPGPConfig(), FedOTPConfig()
    assert (fedpgp.rank, fedpgp.contrast, fedpgp.temperature) == (8, 0.5, 0.5)
    assert (fedotp.mass, fedotp.epsilon, fedotp.weights) == (0.8, 0.1, "samples")
    assert (THRESHOLD, STEPS) == (1e-3, 100)
    zerodfl = ZeroDFLConfig(recipients=1, admit_rise=0.0, rows_shared=0)
    assert (zerodfl.recipients, zerodfl.rows_shared) == (1, 0)


PUBLISHED: dict[str, tuple[Any, ...]] = {
    "promptfl": (5, 32, 0.001),
    "fedclip": (None, 32, 5e-05),
    "fedmaple": (5, 4, 0.0035),
    "fedotp": (5, 16, 0.001),
    "fedpgp": (2, 16, 0.001),
    "fedtpg": (None, None, None),
}
"""Epochs, batch and rate of the papers' released code."""


def test_the_tuning_is_that_of_the_released_code() -> None:
    keys = ("epochs", "batch_size", "lr")
    for name, published in PUBLISHED.items():
        assert tuple(registry.policy(name).tuning.get(key) for key in keys) == published


def test_the_paper_s_bytes_count_float32_and_for_fedtpg_float16() -> None:
    numbers = 10 * 6 * 2 * 16 * 512  # rounds, clients, up and down, context vectors
    for name, size in (("promptfl", 4), ("fedtpg", 2)):
        kind: Any = registry.policy(name)
        found = kind.paper_bytes(kind.config_type(), {"context": (16, 512)}, 10, 6)
        assert found == numbers * size


@pytest.mark.parametrize(
    ("name", "values", "length", "sent", "private"),
    [
        ("fedclip", {}, 4, 525_312, 0),
        ("fedtpg", {}, 4, 4_206_080, 0),
        ("fedmaple", {"depth": 9}, 2, 3_555_072, 0),
        ("fedmaple", {"depth": 12}, 8, 4_776_960, 0),
        ("fedotp", {}, 16, 8_192, 8_192),
        ("fedpgp", {"rank": 8}, 16, 8_192, 4_224),
        ("fedpgp", {"rank": 4}, 16, 8_192, 2_112),
        ("plan", {}, 8, 122_880 + 5_269_248, 0),
    ],
)
def test_numbers_are_as_many_as_published_with_vit_b_16(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: dict[str, Any],
    length: int,
    sent: int,
    private: int,
) -> None:
    texts = SimpleNamespace(written=lambda names, template: torch.zeros(1, 512))
    monkeypatch.setattr("fednode.learn.prompt_module.ClassTexts", lambda backbone: texts)
    text = SimpleNamespace(width=512, layers=12)
    vision = SimpleNamespace(width=768, layers=12, patches_shape=(196, 512), patches=None)
    model = SimpleNamespace(template=PLAIN, text=text, vision=vision)
    config = registry.policy(name).config_type(**values)
    module = registry.prompt_module(name)(model, tuning(context_length=length), config)
    found = [
        sum(math.prod(shape) for shape in arrays.shapes.values())
        for arrays in (module.initial(1), module.private(1))
    ]
    assert found == [sent, private]


@pytest.mark.parametrize("name", ["fedclip", "fedtpg", "plan"])
def test_words_that_would_change_nothing_are_refused(name: str, model: FrozenClip) -> None:
    settings = TuningSettings(init_words="a photo of a")
    module = registry.prompt_module(name)(model, settings, registry.policy(name).config_type())
    with pytest.raises(ConfigError, match=f"tuning.init_words is 'a photo of a', .* policy {name}"):
        module.initial(1)


def test_variants_of_diprompt_and_plan_are_those_of_their_tables() -> None:
    """DiPrompT's table 3 and the terms of its loss; PLAN's table 6 and equation 2."""
    both = tuple(map(slot, DOMAINS))
    assert both == ("domain.photo", "domain.art_painting")
    off: dict[str, Any] = {"query_mse": False, "query_kl": False, "query_supervised": 0.0}
    rows: list[tuple[dict[str, Any], tuple[str, ...], bool]] = [
        ({}, ("global", *both), True),
        ({"prompts": "global"}, ("global",), True),
        ({"prompts": "domains"}, both, True),
        (off, ("global", *both), False),
        ({**off, "query_mse": True}, ("global", *both), True),
        ({**off, "query_kl": True}, ("global", *both), True),
        ({**off, "query_supervised": 0.5}, ("global", *both), True),
    ]
    for set_, names, moves in rows:
        config = DiPrompTConfig(domains=DOMAINS, **set_)
        assert (config.names, config.moves_query) == (names, moves)
    towers: dict[Any, tuple[str, ...]] = {
        "both": ("text", "visual"), "text": ("text",), "visual": ("visual",), "none": ()
    }  # fmt: skip
    for aggregators, aggregated in towers.items():
        assert PlanConfig(aggregators=aggregators).aggregated == aggregated
    assert (PlanConfig().words, PlanConfig(description="name").words) == ("a photo of a", "")


def test_a_node_s_own_domain_is_one_of_the_mesh_s_and_spoken_in_words() -> None:
    FedDPTConfig(domains=("art_painting", "sketch-2", "0", "a" * 40))
    assert domains.settings_fault(("art", "photo"), "photo") == ""
    said = domains.settings_fault(("art", "photo"), "foto")
    assert said.startswith("data.domain is 'foto'; say which")
    assert domains.settings_fault(("art",), "") == (
        "data.domain is not set; say which of policy.domains its images are of: art."
    )
    assert domains.spoken("art_painting-2") == "art painting 2"
