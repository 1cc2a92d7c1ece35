"""The driver gives everything that status, page and metrics ask of a running node."""

from __future__ import annotations

import inspect

import pytest

from fednode.observe.view import NodeView
from fednode.runtime.driver import Driver

ASKED = sorted(name for name in vars(NodeView) if not name.startswith("_"))


@pytest.mark.parametrize("name", ASKED)
def test_the_driver_has_it_in_the_same_form(name: str) -> None:
    wanted, given = vars(NodeView)[name], inspect.getattr_static(Driver, name, None)
    if not isinstance(wanted, property):
        assert callable(given)
        assert list(inspect.signature(given).parameters) == list(
            inspect.signature(wanted).parameters
        )
    elif given is not None:
        assert isinstance(given, property)
    else:  # an attribute that every driver sets
        assert f"self.{name}" in inspect.getsource(Driver.__init__)


def test_a_view_is_asked_for_the_node_the_policy_and_the_operator_s_requests() -> None:
    assert {"view", "shown", "telemetry", "command", "revoke"} <= set(ASKED)
