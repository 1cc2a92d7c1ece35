"""The keys that policies have in common: the same place, name and limits in each of them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fednode import registry
from fednode.core.rounds.method import MeshWideSettings, MomentSettings
from fednode.core.settings import MergeSettings
from fednode.errors import ConfigError
from fednode.settings.read import load_settings

MESH_WIDE = [
    name
    for name in registry.names()
    if registry.policy(name).name not in {"gda", "local", "zerodfl"}
]


@pytest.mark.parametrize("name", MESH_WIDE)
def test_every_policy_of_mesh_wide_rounds_has_them(name: str) -> None:
    kind = registry.policy(name).config_type
    assert issubclass(kind, MeshWideSettings)
    assert issubclass(kind, MomentSettings) == (name != "plan")
    domains = ["policy.domains=[photo]"] if "domains" in {one.name for one in fields(kind)} else []
    flags = [f"policy.name={name}", "policy.merge.liars=2", "policy.participants=3", *domains]
    config = load_settings(None, {}, flags).policy.config
    assert (config.participants, config.merge) == (3, MergeSettings(liars=2))
    with pytest.raises(ConfigError, match=r"policy\.participants is -1; it must be at least 0\."):
        load_settings(None, {}, [*flags, "policy.participants=-1"])


@pytest.mark.parametrize("name", ["zerodfl", "plan", "diprompt", "feddpt"])
def test_int8_is_for_policies_that_average_whole_prompts(name: str) -> None:
    flags = [f"policy.name={name}", "policy.wire_dtype=int8"]
    flags += [] if name in {"zerodfl", "plan"} else ["policy.domains=[photo]"]
    with pytest.raises(ConfigError, match=r"policy\.wire_dtype is '?int8'?; .*float16"):
        load_settings(None, {}, flags)
