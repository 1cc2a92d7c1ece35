"""Policies are found by name: the files of node/fednode/policies, and what others install."""

from __future__ import annotations

from typing import Any

import pytest

from fednode import registry
from fednode.errors import ConfigError
from fednode.policies.local import Local
from fednode.policies.zerodfl import ZeroDFL
from fednode.policy import CoOp, GossipConfig, GossipMethod


class Elsewhere(GossipMethod):
    """A third party's method."""

    name = "elsewhere"
    config_type = GossipConfig
    prompts = CoOp


class Entry:
    """An entry point of an installed distribution."""

    def __init__(self, name: str, offered: Any) -> None:
        self.name, self._offered, self.value = name, offered, "their.module:Elsewhere"

    def load(self) -> Any:
        if isinstance(self._offered, Exception):
            raise self._offered
        return self._offered


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", lambda _: (Entry("elsewhere", Elsewhere),))


def test_files_are_policies() -> None:
    assert {"local", "zerodfl"} <= set(registry.names())
    assert registry.policy("zerodfl") is ZeroDFL
    assert registry.policy("local") is Local


def test_every_policy_says_its_own_name_and_what_it_tunes() -> None:
    for name in registry.names():
        assert registry.policy(name).name == name
        assert registry.prompt_module(name)


@pytest.mark.usefixtures("installed")
def test_an_installed_policy_is_found_beside_them() -> None:
    assert "elsewhere" in registry.names()
    found: Any = registry.policy("elsewhere")
    assert found is Elsewhere
    assert registry.prompt_module("elsewhere") is CoOp


@pytest.mark.usefixtures("installed")
def test_a_class_that_is_no_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elsewhere, "prompts", None)
    with pytest.raises(ConfigError, match=r"'elsewhere': Elsewhere\.prompts is None: set it to a"):
        registry.policy("elsewhere")


@pytest.mark.parametrize(
    ("name", "offered", "said"),
    [
        ("mine", SyntaxError("invalid syntax"),
         "cannot be loaded (SyntaxError: invalid syntax): correct the entry point"),
        ("mine", AttributeError("module has no attribute Elsewhere"), "cannot be loaded (Attr"),
        ("mine", Elsewhere, "is 'elsewhere': give the entry point and the class the same name."),
        ("gda", Elsewhere, "a method of fednode, and an installed package brings one of "),
    ],
)  # fmt: skip
def test_an_entry_point_that_names_no_such_class_has_a_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, offered: Any, said: str
) -> None:
    monkeypatch.setattr(registry, "_entries", lambda _: (Entry(name, offered),))
    with pytest.raises(ConfigError) as fault:
        registry.policy(name)
    assert str(fault.value).startswith(f"policy.name is {name!r}, a")
    assert "their.module:Elsewhere" in str(fault.value)
    assert said in str(fault.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("zerodlf", "did you mean 'zerodfl'"),
        ("x", "there are diprompt, fedclip"),
        ("fedprox_prompts", "there are dip.* write module:Class in an experiment's file; nodes ne"),
        ("fedprox:FedProx", "nodes need an installed package that has an entry point of the pol"),
        ("..os", "no policy"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        registry.policy(name)
