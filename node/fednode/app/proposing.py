"""Propose a change of the settings that a mesh shares."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from fednode.app.admission import right_of
from fednode.app.network import IDENTITY
from fednode.app.plan import NodePlan
from fednode.errors import ConfigError
from fednode.identity.document import Content, sign
from fednode.identity.identity import Identity
from fednode.settings.agreed import OWN_FILE, SHARED, agreed, taken, unknown
from fednode.settings.read import Source, Tree, put_flags, settings_of

BROUGHT = ("tuning", "rounds")
"""Sections for which a policy brings values of its own."""


def proposed(
    plan: NodePlan,
    previous: str,
    number: int,
    start: int,
    flags: Sequence[str] = (),
    policy: str | None = None,
) -> Content:
    """Return a document that changes the settings in force at a node.

    previous: the digest of the document in force. flags: section.key=value. policy: its name; it
    comes with the settings that it brings. Raise ConfigError for a key that sites do not share, and
    for settings that are not valid.
    """
    tree = agreed(plan.settings)
    if policy is not None:
        tree = _under(tree, policy)
    for flag in flags:
        place = tuple(flag.partition("=")[0].split("."))
        if fault := unknown(place):
            raise ConfigError(f"--set {flag}: {fault}")
        if not any(place[: len(key)] == key for key in SHARED):
            shared = ", ".join(".".join(key) for key in SHARED)
            raise ConfigError(
                f"--set {flag}: {'.'.join(place)} is each site's own, and sites share {shared}."
            )
    put_flags(tree, {}, flags)
    assert plan.own is not None
    return Content(
        mesh=plan.peers.mesh,
        number=number,
        previous=previous,
        start=start,
        settings=_whole(tree),
        relays=tuple((relay.address, relay.id) for relay in plan.own.peers.relays),
        issued=int(time.time()),
    )


def signed(plan: NodePlan, content: Content) -> bytes:
    """Return the document, signed with the node's key; raise IdentityError if it is no sponsor."""
    right = right_of(plan.state)
    if not right and not plan.peers.sponsors:
        raise ConfigError(
            f"No node of {plan.peers.mesh!r} may sign settings, because peers.yaml names no "
            "sponsors: change node.yaml on all nodes, and restart them."
        )
    if not right:
        raise ConfigError(
            f"{plan.name} admits no sites, so it proposes no settings: run this at the founder's "
            "machine or a sponsor's, or ask the founder for `fednode sponsor`."
        )
    return sign(Identity(plan.state / IDENTITY, plan.peers.mesh, plan.name).key, right, content)


def _under(tree: Tree, policy: str) -> Tree:
    """Return shared settings with another policy, and what it brings in place of the values before.

    The number of rounds stays.
    """
    kept = {key: value for key, value in tree.items() if key not in BROUGHT}
    rounds = {key: value for key, value in tree.get("rounds", {}).items() if key != "mode"}
    return {**kept, "rounds": rounds, "policy": {"name": policy}}


def _whole(tree: Tree) -> Tree:
    """Return the shared settings of a tree, valid and whole; a model's file stays each site's."""
    model = dict(tree.get("model", {}))
    own = {key: value for key, value in model.items() if OWN_FILE in str(value)}
    checked = agreed(settings_of(Source("the proposed settings", tree)))
    if own:
        checked["model"] = {**checked.get("model", {}), **own}
    return taken(json.dumps(checked))
