"""Which file systems belong to several machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import ConfigError
from fednode.learn import cache
from fednode.learn.settings import CacheSettings
from fednode.storage.disk import network_file_system

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2
31 30 254:1 / /home/local rw,relatime - xfs /dev/vdb rw
32 22 0:26 / /data/my\040share rw,relatime - cifs //server/share rw
33 22 0:27 / /over rw - ext4 /dev/vdc rw
34 33 0:28 / /over rw - fuse.sshfs far:/over rw
""".lstrip()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/cache", ""),
        ("/home/me/.cache/fednode", "nfs4"),
        ("/home", "nfs4"),
        ("/homes", ""),
        ("/home/local/me", ""),
        ("/data/my share/cache", "cifs"),
        ("/over/x", "fuse.sshfs"),
    ],
)
def test_the_mount_that_is_nearest_tells_the_file_system(
    tmp_path: Path, folder: str, kind: str
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert network_file_system(Path(folder), table) == kind


def test_a_system_without_a_table_of_mounts(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "none") == ""
    assert network_file_system(tmp_path) == ""


def test_only_a_cache_that_is_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "network_file_system", lambda _: "lustre")
    assert cache.cache_of(CacheSettings(str(tmp_path), size_mb=0)) is None
    with pytest.raises(ConfigError, match=r"cache\.folder is .* \(lustre\), where SQLite's WAL"):
        cache.cache_of(CacheSettings(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
