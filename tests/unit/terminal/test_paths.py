"""Paths of commands: what a shell completes, and the settings of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.terminal.paths import CONFIG, settings_here


def test_the_settings_of_the_folder_are_used_where_none_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_here(None) is None
    assert settings_here(Path("mine.yaml")) == Path("mine.yaml")
    (tmp_path / "node.yaml").touch()
    assert settings_here(None) == CONFIG
    assert settings_here(Path("mine.yaml")) == Path("mine.yaml")
