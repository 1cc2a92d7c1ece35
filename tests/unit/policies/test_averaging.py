"""Methods of federated averaging: found by name, with their settings and their papers' values."""

from __future__ import annotations

from typing import Any

import pytest

from fednode import registry
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.types import Json, Tensors
from fednode.testing import frame

SHAPES = {"context": (16, 512)}

# Of the papers' released code: epochs, batch, rate.
PUBLISHED: dict[str, tuple[Json, Json, Json]] = {
    "promptfl": (5, 32, 0.001),
    "fedclip": (None, 32, 5e-05),
    "fedmaple": (5, 4, 0.0035),
    "fedotp": (5, 16, 0.001),
    "fedpgp": (2, 16, 0.001),
    "fedtpg": (None, None, None),
}


POLICIES = {name: registry.policy(name) for name in PUBLISHED}
PROMPTFL, FEDOTP, FEDTPG = (POLICIES[name] for name in ("promptfl", "fedotp", "fedtpg"))


@pytest.mark.parametrize("name", POLICIES)
def test_the_registry_offers_it_with_settings_and_an_objective_of_its_own(name: str) -> None:
    kind = registry.policy(name)
    assert kind == POLICIES[name]
    assert kind.name == name
    assert issubclass(kind.config_type, AveragingConfig)
    assert kind.config_type.__module__.startswith(f"fednode.policies.{name}")
    assert registry.prompt_module(name).__module__.startswith("fednode.")


def test_a_policy_is_named_for_each_published_tuning() -> None:
    found = {
        name: tuple(kind.tuning.get(key) for key in ("epochs", "batch_size", "lr"))
        for name, kind in POLICIES.items()
    }
    assert found == PUBLISHED


def test_a_running_policy_has_its_own_name_and_one_method() -> None:
    prompts = Tensors({"context": [[1.0, 2.0]]})
    for name, kind in POLICIES.items():
        policy: Any = kind.start(kind.config_type(), frame(name), prompts)
        assert policy.name == name
        assert isinstance(policy.method, Averaging)


def test_the_paper_s_bytes_count_float32_and_for_fedtpg_float16() -> None:
    numbers = 10 * 6 * 2 * 16 * 512  # rounds, clients, up and down, context vectors
    assert PROMPTFL.paper_bytes(PROMPTFL.config_type(), SHAPES, 10, 6) == numbers * 4
    assert FEDTPG.paper_bytes(FEDTPG.config_type(), SHAPES, 10, 6) == numbers * 2


def test_two_policies_of_one_method_differ() -> None:
    assert PROMPTFL != FEDOTP
    assert len({hash(kind) for kind in POLICIES.values()}) == len(POLICIES)
