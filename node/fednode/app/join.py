"""What `fednode join` shows of a mesh, and the files of a node that becomes a member."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fednode import units
from fednode.app.node_yaml import node_text
from fednode.app.plan import NodePlan
from fednode.data.base import NodeData
from fednode.enrolment.invitation import Invitation
from fednode.errors import ConfigError
from fednode.learn.learner import Learner
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import Tree
from fednode.settings.shared import OWN_MODELS

FINGERPRINT: Final = "fingerprint"
SHOWN: Final = 12
"""Characters of a model's fingerprint that are told and shown."""


def settings_text(
    tree: Tree, site: str, data: Path, model: str | None, flags: Sequence[str] = ()
) -> str:
    """Return node.yaml: the shared settings, this site's images and name, the rest as comments.

    tree: the shared settings. model: of this site, if each site has a file of its own. flags:
    section.key=value of this site's own settings. Raise ConfigError if the model is missing, or for
    a flag that cannot be taken.
    """
    chosen = dict(tree.get("model", {}))
    for (_, key), own in OWN_MODELS.items():
        if chosen.get(key) == own and model is None:
            raise ConfigError(
                "The model of this mesh is a file that each site has: give yours with --model "
                f"{'local-dir:FOLDER' if key == 'name' else 'FILE'}; its digest is compared."
            )
        if chosen.get(key) == own:
            chosen[key] = model
    return node_text({**tree, "model": chosen, "name": site}, data, flags)


def peers_of(invitation: Invitation, address: str) -> Peers:
    """Return the peers.yaml of this site: the sponsor that made the link, and itself."""
    return Peers(
        invitation.mesh,
        (PeerEntry(invitation.sponsor, invitation.address), PeerEntry(invitation.site, address)),
        mesh_key=invitation.mesh_key,
        relays=invitation.relays,
    )


def model_line(model: str, sponsor: str, own: str) -> str:
    """Return the model of the mesh in words; own: the fingerprint of the model here, "" if none.

    model: as the sponsor, the node that made the link, names its own. Raise ConfigError if the
    model here is another one.
    """
    name, said, theirs = model.rpartition(f", {FINGERPRINT} ")
    if not own:
        return model
    if not said:
        return (
            f"{model}, {FINGERPRINT} {own[:SHOWN]} here; {sponsor} still loads its "
            "own, and nodes compare them"
        )
    if not own.startswith(theirs):
        raise ConfigError(
            f"The model of the mesh is {model}, and the one here has {own[:SHOWN]}: "
            "take the same file or version as the other sites."
        )
    return f"{name}{said}{theirs}"


def leaves(plan: NodePlan, learner: Learner) -> str:
    """Return what a node sends to its peers, in words."""
    classes, images = learner.announced
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
        unsent = f"; nothing of {units.listed(few, 5)}, with fewer than {least} images or patients"
    return f"{sent}, {' and '.join(rest)}{again}{unsent}"


def images_line(data: NodeData) -> str:
    rest = (
        f", {len(split.images):,} kept from training for {use}"
        for split, use in ((data.validation, "validation"), (data.own, "tests"))
        if split.images
    )
    return f"{len(data.train.images):,} to train on{''.join(rest)}"
