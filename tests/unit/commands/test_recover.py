"""A damaged journal: which rounds come back, and what is said where none does."""

from __future__ import annotations

from pathlib import Path

from fednode.commands.recover import recover
from tests.command_line import named
from tests.unit.commands.run import Fednode
from tests.unit.storage.stored import filled
from tests.unit.storage.test_recover import newest_row


def test_nothing_is_made_of_nothing(tmp_path: Path, fednode: Fednode) -> None:
    filled(tmp_path / "s", 2).close()
    path = tmp_path / "s" / "journal.db"
    assert "is not damaged: `fednode start`" in fednode.fault("recover", "--state", path.parent)
    path.write_bytes(b"\xff" * path.stat().st_size)
    said = fednode.fault("recover", "--state", path.parent)
    assert said.startswith(f"No round in {path} is whole: restore {path.parent} from a backup")
    assert path.read_bytes() == b"\xff" * path.stat().st_size
    assert "There is no journal" in fednode.fault("recover", "--state", tmp_path / "none")


def test_a_running_node_is_left_alone(tmp_path: Path, fednode: Fednode) -> None:
    store = filled(tmp_path / "s", 2)
    assert "is in use" in fednode.fault("recover", "--state", tmp_path / "s")
    store.close()


def test_the_command_says_what_came_back_and_where_the_rest_is(
    tmp_path: Path, fednode: Fednode
) -> None:
    filled(tmp_path / "s", 5).close()
    path = tmp_path / "s" / "journal.db"
    path.write_bytes(newest_row(path.read_bytes()))
    assert fednode("recover", "--state", tmp_path / "s") == 0
    assert fednode.out.startswith(
        f"{tmp_path / 's'} holds round 4 again, and `fednode start` goes on there."
    )
    assert fednode.out.endswith("The damaged file is journal.db.damaged.\n")


def test_its_name_leads_here() -> None:
    assert named("recover") is recover
