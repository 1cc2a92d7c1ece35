"""`fednode introducer`: keys, tokens, invitations and revocations on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.errors import IdentityError
from fednode.identity import lease as leases
from fednode.identity.keys import node_id
from fednode.identity.lease import disarm
from fednode_bootstrap.introducer import Roster
from fednode_bootstrap.introducer_command import introducer
from tests.command_line import named
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED, MESH, made_key

A, B, C = LISTED["a"], LISTED["b"], node_id(made_key(5))
ADDRESS = "127.0.0.1:7101"


@pytest.fixture
def given(tmp_path: Path) -> tuple[str | Path, ...]:
    """Return the options that every subcommand takes."""
    return ("--state", tmp_path / "book", "--mesh", MESH)


def test_its_name_leads_here() -> None:
    assert named("introducer") is introducer


def test_the_mesh_key_is_made_once(
    fednode: Fednode, given: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fednode("introducer", "key", *given) == 0
    first = fednode.out
    assert first == f"mesh_key: {Roster(tmp_path / 'book', MESH).mesh_key}\n"
    fednode("introducer", "key", *given)
    assert fednode.out == first


def test_a_token_enrols_as_many_nodes_as_it_says_under_its_name(
    fednode: Fednode, given: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fednode("introducer", "token", *given, "--uses", "2") == 0
    token = fednode.out.strip()
    book = Roster(tmp_path / "book", MESH)
    assert book.enrol(A, MESH, "a", ADDRESS, token)
    assert book.enrol(B, MESH, "b", ADDRESS, token)
    fednode("introducer", "token", *given, "--name", "c")
    with pytest.raises(IdentityError, match="another name"):
        book.enrol(C, MESH, "d", ADDRESS, fednode.out.strip())


def test_a_name_is_freed_for_another_key(
    fednode: Fednode, given: tuple[str | Path, ...], tmp_path: Path
) -> None:
    book = Roster(tmp_path / "book", MESH)
    book.enrol(A, MESH, "a", ADDRESS, book.tokens.new())
    assert fednode("introducer", "free", *given, "--name", "a") == 0
    assert book.enrol(B, MESH, "a", ADDRESS, fednode.out.strip())
    said = fednode.fault("introducer", "free", *given, "--name", "z")
    assert said.startswith("--name is 'z', and no key has that name")


def test_a_revocation_is_a_line_for_peers_yaml(
    fednode: Fednode, given: tuple[str | Path, ...], tmp_path: Path
) -> None:
    assert fednode("introducer", "revoke", *given, "--name", "a", "--id", A) == 0
    statement = leases.peek(disarm(fednode.out.strip()))
    assert (statement.kind, statement.name, statement.id) == ("revocation", "a", A)
    book = Roster(tmp_path / "book", MESH)
    assert book.revocations() == [disarm(fednode.out.strip())]
    book.enrol(B, MESH, "b", ADDRESS, book.tokens.new())
    said = fednode.fault("introducer", "revoke", *given, "--name", "z")
    assert said == "--name is 'z', and the names that are enrolled are b: give --id, too."
    assert fednode("introducer", "revoke", *given, "--name", "b") == 0
    assert leases.peek(disarm(fednode.out.strip())).id == B
    assert book.enrolled() == []


def test_an_invitation_names_the_files_that_it_wrote(fednode: Fednode, tmp_path: Path) -> None:
    peers = tmp_path / "template.yaml"
    peers.write_text(f"mesh: {MESH}\npeers:\n  - {{name: a, address: 'a:7100'}}\n")
    words = ("--state", tmp_path / "book", "--peers", peers, "--out", tmp_path / "out")
    assert fednode("introducer", "invite", *words) == 0
    assert fednode.out.split() == [
        str(tmp_path / "out" / name) for name in ("peers.yaml", "token-a", "page-token")
    ]


def test_a_mesh_that_cannot_be_named_so_is_refused(fednode: Fednode, tmp_path: Path) -> None:
    said = fednode.fault("introducer", "key", "--state", tmp_path, "--mesh", "No Mesh")
    assert said.startswith("--mesh is 'No Mesh'")
