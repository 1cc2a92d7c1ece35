"""Removed settings: a file of today may not name them, and a state directory of before may."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.faults import REMOVED, lasting, meant
from fednode.settings.read import load_settings

BEFORE = {
    "seed": 3,
    "policy": {"name": "zerodfl", "strategy": "push", "rows_shared": "auto", "recipients": 4},
}


def test_removed_keys_and_values_are_left_out_and_all_others_stay() -> None:
    assert lasting(BEFORE) == {
        "seed": 3,
        "policy": {"name": "zerodfl", "recipients": 4},
    }


def test_a_value_that_is_still_allowed_stays() -> None:
    tree = {"policy": {"name": "zerodfl", "rows_shared": 2}}
    assert lasting(tree) == tree


@pytest.mark.parametrize("removed", [one for one in REMOVED if one[0].startswith("policy.")])
def test_a_removed_setting_of_a_policy_is_refused_with_its_replacement(
    removed: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "node.yaml"
    key = removed[0].removeprefix("policy.")
    path.write_text(f"policy: {{name: zerodfl, {key}: {removed[-1] if removed[1:] else 1}}}\n")
    with pytest.raises(ConfigError) as fault:
        load_settings(path, {})
    assert "removed" in str(fault.value)
    assert REMOVED[removed] in str(fault.value)


def test_a_removed_key_of_one_policy_is_no_key_of_another_policy(tmp_path: Path) -> None:
    """ZeroDFL's epsilon is gone, and FedOTP still has a key of this name."""
    path = tmp_path / "node.yaml"
    path.write_text("policy: {name: zerodfl, epsilon: 0.5, recipients: 3}\n")
    with pytest.raises(ConfigError) as fault:
        load_settings(path, {}, ["policy.name=promptfl"])
    first, second = str(fault.value).splitlines()
    assert "recipients is a key of policy zerodfl, and policy.name is 'promptfl'" in first
    assert "policy.epsilon was removed" in second
    path.write_text("policy: {name: fedotp, epsilon: 0.5}\n")
    assert load_settings(path, {}).policy.config.epsilon == 0.5


def test_the_name_that_is_nearest_to_what_was_said_is_asked_for() -> None:
    assert meant("hospitl-b", ["hospital-a", "hospital-b"]) == "did you mean 'hospital-b'?"
    assert meant("zoo", ["hospital-a"]) == ""
    assert meant("zoo", []) == ""
