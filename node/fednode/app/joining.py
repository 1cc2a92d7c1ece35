"""Ask for admission to the mesh of a link, and write the files of a node that was admitted."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fednode import units
from fednode.admission.link import Link
from fednode.app.network import IDENTITY
from fednode.app.plan import NodePlan
from fednode.app.writing import mesh_text, with_images, with_keys, with_values
from fednode.data.base import NodeData
from fednode.errors import ConfigError, FednodeError, IdentityError, Unreachable
from fednode.identity import keys
from fednode.identity import lease as leases
from fednode.identity.enrol import Admitter, enrol, judge_token, sponsor
from fednode.identity.identity import LEASE_FILE, Identity
from fednode.identity.lease import Statement
from fednode.learn.learner import Learner, told
from fednode.settings import faults, trees
from fednode.settings.agreed import LOCAL, OWN_FILE, SHARED, taken, unknown
from fednode.settings.peers import PeerEntry, Peers, load_peers
from fednode.settings.read import Tree, put_flags
from fednode.shipped import config_file
from fednode.storage.files import put
from fednode.transports.address import RELAY
from fednode.transports.opening import Connect, RelayAt
from fednode.transports.refusing import skew
from fednode.wire.replies import clean

NODE: Final = "node.yaml"
PEERS: Final = "peers.yaml"
FINGERPRINT: Final = "fingerprint"
SHOWN: Final = 12
"""Characters of a model's fingerprint that are told and shown."""
RELAY_TRIES: Final = 3
RELAY_AGAIN_S: Final = 1.5
"""Pause between two tries: a node tells its relays of a new link within two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The answer of the node that made a link. right: to admit. settings: the shared ones."""

    link: Link
    admitter: Admitter
    right: Statement
    settings: Tree
    members: tuple[str, ...]
    model: str


async def ask(link: Link, identity: Identity, address: str, connect: Connect) -> Invitation:
    """Ask the node that made a link what the mesh is; the link is not used up.

    It is asked at the addresses in the link, and through the relays there. Raise Unreachable if it
    does not answer, Refused if the link is not good, IdentityError if the node that answers is not
    the one that made the link, or has no right to admit.
    """
    fault: FednodeError = Unreachable("The link names no address.")
    relays = tuple(RelayAt(relay.address, relay.id) for relay in link.relays)
    for number, place in enumerate(link.addresses or (RELAY,) * RELAY_TRIES):
        if place == RELAY and number:
            await asyncio.sleep(RELAY_AGAIN_S)
        admitter = sponsor(place, link.made_by, relays, link.beginning)
        try:
            reply = await judge_token(identity, admitter, address, link.token.hex(), connect)
        except (Unreachable, IdentityError) as failed:
            fault = failed
            continue
        reply = clean(reply)
        if reply.clock and (apart := skew(reply.clock, time.time())):
            raise IdentityError(
                f"The clock of the node at {place} is {apart} this machine's, and keys and leases "
                "hold by the clock: set the clock that is wrong, then use the link; it holds still."
            )
        right = _right(link, bytes(reply.sponsor), place)
        return Invitation(
            link=link,
            admitter=admitter,
            right=right,
            settings=taken(reply.settings),
            members=tuple(name for name in reply.members if name != link.name),
            model=reply.model,
        )
    raise fault


def _right(link: Link, proof: bytes, place: str) -> Statement:
    """Return the right to admit that the mesh key of the link signed; raise IdentityError."""
    try:
        right = leases.read(proof, keys.read_public(link.mesh_key))
    except IdentityError as fault:
        raise IdentityError(f"The node at {place} cannot be believed: {fault}.") from None
    if right.kind != "sponsor" or right.mesh != link.mesh or not link.made_by(right.id):
        raise IdentityError(
            f"The node at {place} cannot be believed: it shows no right to admit to {link.mesh!r}."
        )
    return right


async def take_lease(
    invitation: Invitation, identity: Identity, address: str, connect: Connect
) -> None:
    """Use the link: get and store the lease; raise IdentityError for one that does not hold."""
    link = invitation.link
    await enrol(identity, invitation.admitter, address, link.token.hex(), connect)
    leases.vouched(identity.proof, keys.read_public(link.mesh_key))


def strange(identity: Identity, link: Link) -> bool:
    """Tell whether the key in the state directory belongs to another mesh of the same name."""
    if not identity.proof:
        return False
    try:
        leases.vouched(identity.proof, keys.read_public(link.mesh_key))
    except IdentityError:
        return True
    return False


def forgotten(folder: Path, state: Path, link: Link) -> bool:
    """Tell whether a folder holds the settings of this node, and its key or lease was deleted.

    Only then may the folder be joined into again: nothing else belongs to the files in it.
    """
    if not (folder / PEERS).is_file():
        return False
    try:
        peers = load_peers(folder / PEERS)
    except ConfigError:
        return False
    own = next((peer for peer in peers.peers if peer.name == link.name), None)
    if own is None or (peers.mesh, peers.mesh_key) != (link.mesh, link.mesh_key):
        return False
    if not (state / IDENTITY / keys.KEY_FILE).exists():
        return True
    return not own.id and not (state / IDENTITY / LEASE_FILE).exists()


def set_aside(folder: Path) -> list[Path]:
    """Rename node.yaml and peers.yaml of a folder, so that none is lost; return the new names."""
    kept = list[Path]()
    for file in (folder / NODE, folder / PEERS):
        if file.exists():
            kept.append(free_name(f"{file}.before"))
            file.rename(kept[-1])
    return kept


def free_name(name: str) -> Path:
    """Return a path of this name that does not exist, with a number if it has to be."""
    paths = (Path(name + (f"-{number}" if number > 1 else "")) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())


def settings_text(
    invitation: Invitation, data: Path, model: str | None, flags: Sequence[str] = ()
) -> str:
    """Return node.yaml: the shared settings, this site's images and name, the rest as comments.

    model: of this site, if each site has a file of its own. flags: section.key=value of this
    site's own settings. Raise ConfigError if the model is missing, or for a flag that cannot be
    taken.
    """
    tree = invitation.settings
    chosen = dict(tree.get("model", {}))
    for key, own in (("name", LOCAL + OWN_FILE), ("pretrained", OWN_FILE)):
        if chosen.get(key) == own and model is None:
            raise ConfigError(
                "The model of this mesh is a file that each site has: give yours with --model "
                f"{'local-dir:FOLDER' if key == 'name' else 'FILE'}; its digest is compared."
            )
        if chosen.get(key) == own:
            chosen[key] = model
    text = with_images(config_file("node.yaml").read_text(encoding="utf-8"), data)
    text = with_values(text, {**tree, "model": chosen})
    return with_own(with_keys(text, {"name": invitation.link.name}), flags)


def with_own(text: str, flags: Sequence[str], founds: bool = False) -> str:
    """Return a node.yaml with a site's own settings; raise ConfigError for a flag that is none.

    founds: the site founds the mesh, so it sets the shared settings, too.
    """
    tree, places = Tree(), dict[tuple[str, ...], str]()
    put_flags(tree, places, flags)
    for place, flag in places.items():
        if fault := unknown(place):
            raise ConfigError(f"{flag}: {fault}")
        if not founds and any(place[: len(key)] == key for key in SHARED):
            raise ConfigError(
                f"{flag}: all sites of the mesh share {'.'.join(place)}, so no site sets it alone."
            )
    text = with_keys(text, tree)
    said = trees.read(text)[1]
    for place, flag in places.items():
        if faults.at(said, place) != faults.at(tree, place):
            raise ConfigError(
                f"{flag} cannot be set here: write it into node.yaml before the first start"
                f"{'' if founds else ' (join with --no-start)'}."
            )
    return text


def peers_of(invitation: Invitation, address: str) -> Peers:
    """Return the peers.yaml of this site: the node that admitted it, and itself."""
    right, link = invitation.right, invitation.link
    known = PeerEntry(right.name, invitation.admitter.address, right.id)
    return Peers(
        link.mesh,
        (known, PeerEntry(link.name, address)),
        mesh_key=link.mesh_key,
        sponsors=(right.name,),
        relays=link.relays,
    )


def write(folder: Path, settings: str, peers: Peers) -> None:
    """Write node.yaml and peers.yaml into a new folder; raise StateError if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    text = mesh_text(peers.mesh, str(peers.mesh_key), peers.sponsors, peers.peers, peers.relays)
    for name, content in ((NODE, settings), (PEERS, text)):
        put(folder / name, content, "folder", for_all=True)


def model_line(invitation: Invitation, own: str) -> str:
    """Return the model of the mesh in words; own: the fingerprint of the model here, "" if none.

    Raise ConfigError if it is another model than that of the node that made the link.
    """
    name, said, theirs = invitation.model.rpartition(f", {FINGERPRINT} ")
    if not own:
        return invitation.model
    if not said:
        return (
            f"{invitation.model}, {FINGERPRINT} {own[:SHOWN]} here; {invitation.right.name} still "
            "loads its own, and nodes compare them"
        )
    if not own.startswith(theirs):
        raise ConfigError(
            f"The model of the mesh is {invitation.model}, and the one here has {own[:SHOWN]}: "
            "take the same file or version as the other sites."
        )
    return f"{name}{said}{theirs}"


def leaves(plan: NodePlan, learner: Learner) -> str:
    """Return what a node sends to its peers, in words."""
    classes, images = told(learner)
    arrays = learner.initial(plan.settings.seed)
    each = [array for array in arrays.values() if array.shape[:1] == (0,)]
    numbers = sum(array.size for array in arrays.values())
    if plan.policy.name == "local":
        return "nothing that was learned"
    if each:  # rows, one for each class
        sent = (
            f"{sum(array.shape[1] for array in each):,} numbers for each of {len(classes)} classes"
        )
    else:
        sent = f"at most {numbers:,} numbers a round"
    named = plan.settings.data.tell_classes or each
    names = f"{len(classes)} class name{'s' * (len(classes) != 1)}" if named else ""
    counted = f"the number of images to train on ({images:,})"
    rest: Sequence[str] = [part for part in (names, counted) if part]
    least = plan.settings.privacy.least_images
    again = f"; a class again once {least} of its images changed" if each else ""
    few = [name for name in learner.classes if name not in classes] if each else []
    unsent = ""
    if few:
        unsent = f"; nothing of {units.listed(few, 5)}, with fewer than {least} images to train on"
    return f"{sent}, {' and '.join(rest)}{again}{unsent}"


def images_line(data: NodeData) -> str:
    """Return how many images a node has, and what for, in words."""
    rest = (
        f", {len(split.images):,} kept from training for {use}"
        for split, use in ((data.validation, "validation"), (data.own, "tests"))
        if split.images
    )
    return f"{len(data.train.images):,} to train on{''.join(rest)}"
