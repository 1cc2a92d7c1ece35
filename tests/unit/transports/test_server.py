"""The sockets of a server lie in a private folder of this user, wherever TMPDIR leads."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from fednode.errors import AddressError
from fednode.transports import server


@pytest.mark.parametrize("place", ["there", "x" * 90])
def test_a_folder_of_sockets_is_made_wherever_tmpdir_leads(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, there = tmp_path / "usual", tmp_path / place
    monkeypatch.setattr(server, "PLAIN", str(usual))
    monkeypatch.setattr(server, "PLACE_BYTES", len(str(tmp_path)) + 50)
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    for folder in (usual, there):
        folder.mkdir()
    with server.socket_folder() as made:
        assert Path(made).parent == (there if place == "there" else usual)
        assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
    monkeypatch.setattr(tempfile, "tempdir", "/gone")
    with pytest.raises(AddressError, match=r"no place for .* sockets .*: No such file"):
        server.socket_folder()
