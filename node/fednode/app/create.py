"""Create a mesh on this machine, and find the node of this machine that a command means."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.app.plan import NodePlan, plan_in
from fednode.app.state_dir import ROOT
from fednode.enrolment.ledger import FOLDER, Ledger
from fednode.errors import AddressError, ConfigError
from fednode.identity import keys
from fednode.identity.certificates import Authority
from fednode.identity.identity import NodeIdentity, chain_in
from fednode.identity.roster import Roster
from fednode.storage.disk import put, text_of
from fednode.transports.address import RELAY, Endpoint
from fednode.transports.ports import free_ports
from fednode.transports.server import check_free

PORT: Final = 7100
"""The port of a node whose address nobody gave, if it is free."""
ELSEWHERE_IN_THE_WORLD: Final = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): the system says by which way it would be reached."""
FILES: Final = "files"
"""File in the folder of the ledger: the path of the folder of node.yaml and peers.yaml."""


def site_here() -> str:
    """Return a name for this machine's node, made from the host's name."""
    plain = re.sub("[^a-z0-9-]+", "-", socket.gethostname().lower().partition(".")[0])
    return plain.strip("-")[:63] or "site"


def address_here(towards: tuple[str, int] = ELSEWHERE_IN_THE_WORLD, id: str = "") -> str:
    """Return this machine's address on its way to another, with a free port; nothing is sent.

    id: of the node. If the usual port is taken, the node gets the same other port each time.
    """
    family = socket.AF_INET6 if ":" in towards[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(towards)
            host = str(probe.getsockname()[0])
    except OSError:
        host = "127.0.0.1"
    endpoint = Endpoint(host, PORT)
    try:
        check_free(endpoint)
    except AddressError:
        return str(Endpoint(host, free_ports(1, id)[0]))
    return str(endpoint)


def with_port(address: str) -> str:
    """Return an address with the usual port, if it has none."""
    host = address.removeprefix("[").removesuffix("]")
    bare = ":" not in address or (address.startswith("[") and address.endswith("]"))
    with contextlib.suppress(ValueError):
        bare = bare or ipaddress.ip_address(host).version == 6
    return str(Endpoint(host, PORT)) if bare and address != RELAY else address


def mesh_key_file(mesh: str) -> Path:
    """Return the place of the mesh key on the founder's machine; no daemon reads it."""
    return Path.home() / ROOT / mesh / keys.MESH_KEY_FILE


def require_new(mesh: str) -> None:
    """Raise ConfigError if this machine created a mesh of this name before."""
    key = mesh_key_file(mesh)
    if key.exists():
        raise ConfigError(
            f"This machine founded a mesh {mesh!r} already (its key is {key}): take another name. "
            f"To start over, as long as nobody joined, end its nodes and delete {key.parent} and "
            "the folder of its settings."
        )


def create_mesh(mesh: str, site: str, folder: Path) -> str:
    """Make the mesh key, the founder's key and certificate, and its right to sign certificates.

    folder: of node.yaml and peers.yaml. Return the public mesh key, as peers.yaml gives it. Raise
    ConfigError if this machine created a mesh of this name before.
    """
    require_new(mesh)
    path = mesh_key_file(mesh)
    key, state = keys.create(path), path.parent / site
    identity = NodeIdentity.create(state)
    right = Authority.root(mesh, key).sponsor(site, identity.key.public_key())
    identity.take_sponsor(right, Roster(mesh, key.public_key()))
    Ledger(state / FOLDER).record(site, identity.id)
    remember_files(state, folder)
    return keys.written(key.public_key())


def remember_files(state: Path, folder: Path) -> None:
    """Note in a state directory where node.yaml and peers.yaml of the node lie."""
    (state / FOLDER).mkdir(parents=True, exist_ok=True)
    put(state / FOLDER / FILES, f"{folder.resolve()}\n", "state directory")


def load_mesh_key(plan: NodePlan, copy: Path | None = None) -> Ed25519PrivateKey:
    """Return the private mesh key; raise ConfigError if it is not on this machine.

    copy: the file with the copy of the key that the founder kept.
    """
    path = copy or mesh_key_file(plan.peers.mesh)
    if not path.is_file():
        raise ConfigError(
            f"This takes the mesh key, and there is no file {path}: run it on the founder's "
            "machine, or give the copy of the key that the founder kept with --mesh-key FILE."
        )
    key = keys.load(path)
    if keys.written(key.public_key()) != plan.peers.mesh_key:
        raise ConfigError(f"{path} is not the key of the mesh {plan.peers.mesh!r}.")
    return key


def folder_here(admits: bool = False) -> Path:
    """Return this folder if a node's files lie in it, else that of this machine's only node.

    admits: nodes that may admit sites count, and no others. Raise ConfigError if there is no such
    node, or several.
    """
    here = Path.cwd()
    folders = [folder for state, folder in nodes_here() if not admits or _admits(state)]
    if here in folders or (not admits and (here / "peers.yaml").is_file()):
        return here
    if not folders and admits:
        raise ConfigError(
            "No node of this machine admits sites: create a mesh with `fednode init MESH`, or ask "
            "its founder for a link."
        )
    if not folders:
        raise ConfigError("There is no peers.yaml here: run this in the folder of a node's files.")
    if len(folders) > 1:
        places = ", ".join(map(str, folders))
        raise ConfigError(f"{len(folders)} nodes have their files here: run it in one of {places}.")
    return folders[0]


def node_here(admits: bool = False) -> NodePlan:
    """Return the plan of the node that `folder_here` finds; raise ConfigError as that does."""
    return plan_in(folder_here(admits))


def _admits(state: Path) -> bool:
    chain = chain_in(state)
    return chain is not None and chain.right_end > 0


def nodes_here() -> list[tuple[Path, Path]]:
    """Return the state directory of each node of this machine, and the folder of its files."""
    return [
        (file.parent.parent, Path(text_of(file)))
        for file in sorted((Path.home() / ROOT).glob(f"*/*/{FOLDER}/{FILES}"))
    ]
