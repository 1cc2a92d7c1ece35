"""Settings of how a node reaches its peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.settings.read import RelaySettings, load_settings


def test_a_rate_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"relay\.mbit is -1; it must be at least 0"):
        RelaySettings(mbit=-1)


def test_they_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("reach: relay\nrelay: {serve: true, mbit: 10}\n")
    found = load_settings(path, {})
    assert (found.reach, found.relay) == ("relay", RelaySettings(serve=True, mbit=10))
    path.write_text("reach: tunnel\n")
    with pytest.raises(ConfigError, match=r"line 1: .*auto"):
        load_settings(path, {})
