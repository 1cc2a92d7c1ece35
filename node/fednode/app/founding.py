"""Found a mesh on this machine, and find the mesh that a command invites to."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import time
from pathlib import Path
from typing import Final

from fednode.admission.register import Register
from fednode.app.admission import FOLDER, RIGHT, keep_right
from fednode.app.network import IDENTITY
from fednode.app.plan import NodePlan, make
from fednode.app.saved import ROOT
from fednode.errors import AddressError, ConfigError
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.identity import Identity
from fednode.settings.peers import load_peers
from fednode.storage.files import put
from fednode.transports.address import RELAY, Endpoint, parse
from fednode.transports.gates import check_free
from fednode.transports.ports import free_ports

PORT: Final = 7100
"""The port of a node whose address nobody gave, if it is free."""
ELSEWHERE_IN_THE_WORLD: Final = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): the system says by which way it would be reached."""
FILES: Final = "files"
"""File in the folder of an admission: the path of the folder of node.yaml and peers.yaml."""
ADDRESS: Final = "address"
"""File there: the address with which a node tried to join, and whether its operator gave it."""
GIVEN: Final = "given"
FOUND: Final = "found"


def site_here() -> str:
    """Return a name for this machine's node, made from the host's name."""
    plain = re.sub("[^a-z0-9-]+", "-", socket.gethostname().lower().partition(".")[0])
    return plain.strip("-")[:63] or "site"


def address_here(towards: tuple[str, int] = ELSEWHERE_IN_THE_WORLD, port: int = PORT) -> str:
    """Return this machine's address on its way to another, with a free port; nothing is sent.

    port: the one to take if it is free.
    """
    family = socket.AF_INET6 if ":" in towards[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(towards)
            host = str(probe.getsockname()[0])
    except OSError:
        host = "127.0.0.1"
    endpoint = Endpoint(host, port)
    try:
        check_free(endpoint)
    except AddressError:
        return str(Endpoint(host, free_ports(1)[0]))
    return str(endpoint)


def with_port(address: str) -> str:
    """Return an address with the usual port, if it has none."""
    host = address.removeprefix("[").removesuffix("]")
    bare = ":" not in address or (address.startswith("[") and address.endswith("]"))
    with contextlib.suppress(ValueError):
        bare = bare or ipaddress.ip_address(host).version == 6
    return str(Endpoint(host, PORT)) if bare and address != RELAY else address


def address_of(state: Path, given: str | None, towards: tuple[str, int] | None) -> str:
    """Return the address of a node that joins, and remember it for the next try.

    given: by the operator. towards: where the node that admits it answers; None: behind relays
    alone. Without `given` a node keeps the address of the try before, and at least its port if the
    machine has another address now.
    """
    file = state / FOLDER / ADDRESS
    said = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    how, _, before = said.partition(" ")
    if given is not None:
        how, address = GIVEN, with_port(given)
    elif how == GIVEN:
        address = before
    elif towards is None:
        how, address = FOUND, RELAY
    else:
        port = parse(before).port if before else 0
        how, address = FOUND, address_here(towards, port or PORT)
    file.parent.mkdir(parents=True, exist_ok=True)
    put(file, f"{how} {address}\n", "state directory")
    return address


def mesh_key_file(mesh: str) -> Path:
    """Return the place of the mesh key on the founder's machine; no daemon reads it."""
    return Path.home() / ROOT / mesh / keys.MESH_KEY_FILE


def found(mesh: str, site: str, address: str, folder: Path) -> tuple[Identity, str]:
    """Make the mesh key, the founder's key, its lease and its right to admit.

    folder: of node.yaml and peers.yaml. Return the founder's identity, and the public mesh key.
    Raise ConfigError if this machine founded a mesh of this name before.
    """
    path = mesh_key_file(mesh)
    if path.exists():
        raise ConfigError(
            f"This machine founded a mesh {mesh!r} already (its key is {path}): take another name."
        )
    key = keys.create(path)
    state = path.parent / site
    identity = Identity(state / IDENTITY, mesh, site)
    keep_right(state, leases.right(key, mesh, site, identity.id, int(time.time())))
    register = Register(state / FOLDER, mesh, lambda statement: leases.sign(key, statement))
    token = register.tokens.for_link(site, 1).hex()
    identity.take_lease(register.enrol(identity.id, mesh, site, address, token))
    remember_files(state, folder)
    return identity, keys.written(key.public_key())


def remember_files(state: Path, folder: Path) -> None:
    """Note in a state directory where node.yaml and peers.yaml of the node lie."""
    (state / FOLDER).mkdir(parents=True, exist_ok=True)
    put(state / FOLDER / FILES, f"{folder.resolve()}\n", "state directory")


def mesh_key_of(plan: NodePlan, copy: Path | None = None) -> keys.PrivateKey:
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


def folder_here() -> Path:
    """Return this folder if a node's files lie in it, else that of this machine's only node.

    Raise ConfigError if there is no such node, or several.
    """
    here = Path.cwd()
    known = [
        Path(file.read_text(encoding="utf-8").strip())
        for file in sorted((Path.home() / ROOT).glob(f"*/*/{FOLDER}/{FILES}"))
    ]
    if (here / "peers.yaml").is_file():
        known = [here]
    if not known:
        raise ConfigError("There is no peers.yaml here: run this in the folder of a node's files.")
    if len(known) > 1:
        places = ", ".join(map(str, known))
        raise ConfigError(f"{len(known)} nodes have their files here: run it in one of {places}.")
    return known[0]


def node_here() -> NodePlan:
    """Return the plan of the node whose files lie in this folder, else of this machine's only one.

    Raise ConfigError if there is no such node, or several.
    """
    folder = folder_here()
    config = folder / "node.yaml"
    return make(folder / "peers.yaml", config if config.is_file() else None, None, (), None)


def admitting() -> NodePlan:
    """Return the plan of the node on this machine that admits newcomers.

    It is the node whose files lie in this folder, else the only such node. Raise ConfigError if
    there is no such node, or several.
    """
    root = Path.home() / ROOT
    known = [
        Path(file.read_text(encoding="utf-8").strip())
        for file in sorted(root.glob(f"*/*/{FOLDER}/{FILES}"))
        if (file.parent / RIGHT).exists()
    ]
    here = [folder for folder in known if folder == Path.cwd()]
    if not known:
        raise ConfigError(f"No node of this machine admits newcomers: {_who_admits()}")
    if not here and len(known) > 1:
        places = ", ".join(map(str, known))
        raise ConfigError(
            f"{len(known)} nodes of this machine admit newcomers: run it in {places}."
        )
    folder = (here or known)[0]
    return make(folder / "peers.yaml", folder / "node.yaml", None, (), None)


def _who_admits() -> str:
    """Return what to do where no node of this machine admits newcomers."""
    with contextlib.suppress(ConfigError):
        peers = load_peers(Path("peers.yaml"))
        if peers.introducer is not None:
            return (
                f"the introducer at {peers.introducer} enrols the nodes of {peers.mesh!r}. Its "
                "operator admits a node with `fednode introducer token`, and removes one with "
                "`fednode introducer revoke`."
            )
    return "found a mesh with `fednode found`, or ask its founder for the link."
