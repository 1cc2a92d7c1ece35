"""The policy of a node's settings: parsed once, and written as the user wrote it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.read import (
    Chosen,
    Settings,
    Source,
    chosen_of,
    load_settings,
    settings_of,
    tree_of,
)


def test_a_tree_of_settings_holds_what_was_written_of_the_policy() -> None:
    """It is read back as equal settings: state directories and exported files rely on it."""
    settings = load_settings(None, {}, ["policy.recipients=3", "seed=7"])
    tree = tree_of(settings)
    assert list(tree) == [one.name for one in fields(Settings)]
    assert (tree["policy"], tree["seed"]) == ({"name": "zerodfl", "recipients": 3}, 7)
    assert settings_of(Source("tree", tree)) == settings


@pytest.mark.parametrize("text", ["policy: 3\nseed: x\n", "policy: [promptfl]\nseed: x\n"])
def test_a_policy_that_is_no_section_is_one_fault(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    first, second = sorted(str(caught.value).splitlines())
    assert first.startswith(f"{path}, line 1: policy is ")
    assert first.endswith("; it must be a section.")
    assert second == f"{path}, line 2: seed is 'x'; it must be a whole number."


def test_a_choice_without_faults_is_the_policy_with_its_settings() -> None:
    chosen = chosen_of({"name": "promptfl", "wire_dtype": "float16"})
    assert isinstance(chosen, Chosen)
    assert (chosen.name, chosen.wire_dtype, chosen.caution) == ("promptfl", "float16", "")
    assert isinstance(chosen.config, chosen.kind.config_type)
    assert chosen_of({"name": "local"}).wire_dtype == "float32"
    assert chosen_of({"name": "zerodfl"}).caution.startswith("policy.admit_rise is null")
    assert chosen_of({"name": "zerodfl", "admit_rise": 0.05}).caution == ""
    with pytest.raises(ConfigError, match=r"policy\.participants is -1; it must be at least 0\."):
        chosen_of({"name": "promptfl", "participants": -1})
