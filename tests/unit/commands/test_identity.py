"""`fednode identity`: a key is made once, shown, replaced, and shows the lease it is given."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fednode.app.network import IDENTITY
from fednode.commands.identity import identity
from fednode.identity import keys
from fednode.identity.identity import Identity
from fednode.identity.lease import DAY_S, armour
from fednode.storage.disk import lock
from tests.command_line import named
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import NOW, lease

NODE = ("--mesh", "mesh", "--name", "n")


def test_its_name_leads_here() -> None:
    assert named("identity") is identity


def test_a_new_key_prints_its_line_for_peers_yaml_and_is_not_made_twice(
    fednode: Fednode, tmp_path: Path
) -> None:
    assert fednode("identity", "new", *NODE) == 0
    folder = tmp_path / ".local/state/fednode/mesh/n" / IDENTITY
    own = keys.node_id(keys.load(folder / keys.KEY_FILE))
    assert fednode.out == f'  - {{name: n, address: "HOST:PORT", id: {own}}}\n'
    assert fednode.fault("identity", "new", *NODE).startswith(f"{folder} holds a key already")
    assert fednode("identity", "show", *NODE) == 0
    assert fednode.out == f"{own}\n"


def test_a_rotation_prints_both_ids_and_waits_for_the_node_to_stop(
    fednode: Fednode, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    fednode("identity", "new", *NODE, "--state", state)
    (before,) = re.findall(r"id: (\S+)}", fednode.out)
    held = lock(state)
    assert "is in use" in fednode.fault("identity", "rotate", *NODE, "--state", state)
    os.close(held)
    assert fednode("identity", "rotate", *NODE, "--state", state) == 0
    old, _, new = fednode.out.splitlines()
    assert old == before != new
    assert fednode("identity", "show", *NODE, "--state", state) == 0
    assert fednode.out == f"{new}\nit succeeds an older key: put this id into every peers.yaml\n"


def test_a_lease_is_taken_if_it_is_this_node_s(fednode: Fednode, tmp_path: Path) -> None:
    own = Identity(tmp_path / "s" / IDENTITY, "mesh", "n")
    proof = lease("n", own.key, expires=NOW + 90 * DAY_S)
    assert fednode("identity", "take", *NODE, "--state", tmp_path / "s", "--", armour(proof)) == 0
    assert fednode("identity", "show", *NODE, "--state", tmp_path / "s") == 0
    assert "lease of 'n' in mesh 'mesh' until 2027-04-15" in fednode.out
    other = armour(lease("other", own.key))
    said = fednode.fault("identity", "take", *NODE, "--state", tmp_path / "s", "--", other)
    assert "this node is 'n' of 'mesh'" in said


def test_a_name_that_no_node_may_have_is_refused(fednode: Fednode) -> None:
    said = fednode.fault("identity", "new", "--mesh", "mesh", "--name", "../x")
    assert "--name is '../x'" in said
