"""The link to a node's page: with its token for whoever may read the state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.page_link import FILE, LINK, draw, keep_link, link
from fednode.errors import StateError

PAGE = "http://127.0.0.1:8081/"


def test_a_token_is_drawn_once_for_its_owner_alone(tmp_path: Path) -> None:
    token = draw(tmp_path)
    assert len(token) >= 32
    assert draw(tmp_path) == token
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).write_text("")
    with pytest.raises(StateError, match="page-token cannot be read, or is empty"):
        draw(tmp_path)


def test_the_link_holds_the_token_where_the_node_of_the_state_directory_has_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".local/state/fednode/clinic/a"
    assert link(PAGE, "clinic", "a", None) == PAGE
    folder.mkdir(parents=True)
    keep_link(folder, PAGE, "secret")
    assert link(PAGE, "clinic", "a", None) == f"{PAGE}#token=secret"
    assert link(PAGE, "other", "b", folder) == f"{PAGE}#token=secret"
    assert link(PAGE, "..", "a", None) == PAGE
    assert (folder / LINK).stat().st_mode & 0o777 == 0o600
    # Another process of this machine answers with this node's name.
    assert link("http://127.0.0.1:9999/", "clinic", "a", None) == "http://127.0.0.1:9999/"
    keep_link(folder, "", "")
    assert link(PAGE, "clinic", "a", None) == PAGE


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("http://clinic.example:80/", "http://clinic.example:80/"),
        ("http://127.0.0.1:80/@evil.example/", ""),
        ("http://127.0.0.1:80@evil.example/", ""),
        ("\x1b]0;title\x07", ""),
        ("", ""),
    ],
)
def test_no_token_leaves_the_machine(tmp_path: Path, page: str, shown: str) -> None:
    keep_link(tmp_path, page, "secret")
    assert link(page, "clinic", "a", tmp_path) == shown
