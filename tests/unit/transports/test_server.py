"""The sockets of a server lie in a private folder of this user, wherever TMPDIR leads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fednode.errors import AddressError
from fednode.transports import server


@pytest.mark.parametrize("place", ["there", "x" * 90, "missing"])
def test_a_folder_of_sockets_is_made_wherever_tmpdir_leads(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "usual"
    usual.mkdir()
    monkeypatch.setattr(server, "PLAIN", str(usual))
    monkeypatch.setattr(server, "PLACE_BYTES", len(str(tmp_path)) + 50)
    (tmp_path / "there").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / place))
    with server.socket_folder() as folder:
        assert Path(folder).parent == (tmp_path / place if place == "there" else usual)
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_no_place_for_sockets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PLAIN", "/gone")
    monkeypatch.setenv("TMPDIR", "/" + "x" * 90)
    with pytest.raises(AddressError, match=r"too long for sockets; .*: No such file or directory"):
        server.socket_folder()
