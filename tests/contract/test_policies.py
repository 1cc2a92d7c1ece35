"""Every registered policy keeps the contract, in every mode and with its odd settings."""

from __future__ import annotations

from typing import Any

import pytest

from node import registry
from node.core.policy import Policy
from node.policies.local.exchange import Local, LocalConfig
from node.policies.zerodfl.config import ZeroDFLConfig
from node.policies.zerodfl.exchange import ZeroDFL
from tests.contract.policies import MODES, Case, PolicyContract

CONFIGS: dict[type[Policy], dict[str, Any]] = {
    Local: {"default": LocalConfig()},
    ZeroDFL: {
        "push": ZeroDFLConfig(recipients=2),
        "push-all": ZeroDFLConfig(recipients=9, wire_dtype="float32"),
        "push-kept-reset": ZeroDFLConfig(recipients=2, positions="kept", optimizer="reset"),
        "push-old-pool": ZeroDFLConfig(recipients=1, pool_age=3),
        "push-nothing": ZeroDFLConfig(rows_shared=0),
        "pull": ZeroDFLConfig(strategy="pull"),
        "pull-exclude": ZeroDFLConfig(strategy="pull", last_row="exclude"),
    },
}
CASES = [
    pytest.param(Case(kind, config, mode), id=f"{kind.name}-{title}-{mode}")
    for kind, configs in CONFIGS.items()
    for title, config in configs.items()
    for mode in MODES
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    found = request.param
    assert isinstance(found, Case)
    return found


class TestPolicies(PolicyContract):
    pass


def test_every_registered_policy_is_here() -> None:
    assert {kind.name for kind in CONFIGS} == set(registry.names())
