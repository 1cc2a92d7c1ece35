"""Take over the shared settings of another node: ask it, say what differs, write node.yaml."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fednode.app import client
from fednode.app.join import free_name
from fednode.app.mesh import roster_in
from fednode.app.node_yaml import with_shared
from fednode.app.plan import NodePlan, begins_anew, disagreements, placed
from fednode.errors import ConfigError, FednodeError, Unreachable
from fednode.identity.identity import NodeIdentity
from fednode.observe.client import Client
from fednode.settings import trees
from fednode.settings.read import Source, Tree, settings_of, written
from fednode.settings.shared import change_lines, changes, parse, shared_tree
from fednode.storage.files import put

ANEW = "after a restart the rounds begin anew; the run so far is kept in {runs}"
GOES_ON = "after a restart the node goes on at its round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What the shared settings of another node change here.

    lines: one for each key, and what happens to the rounds; empty if nothing changes. text: the new
    node.yaml.
    """

    lines: tuple[str, ...]
    text: str


def ask(plan: NodePlan, peers_path: Path, peer: str | None) -> tuple[str, Tree]:
    """Return the node that was asked for its shared settings, and its answer.

    peer: its name or address; None asks the sponsors of the mesh in turn. Raise ConfigError if
    there is nobody to ask, FednodeError if nobody answers.
    """
    names = [name for name in _sponsors(plan) if name != plan.name] if peer is None else [peer]
    if not names:
        raise ConfigError(
            "This node knows no sponsor besides itself, so there is nobody to ask: name the member "
            "whose settings this node takes over, as in fednode settings pull NAME."
        )
    fault: FednodeError | None = None
    for name in names:
        try:
            make, ((_, where),) = client.reach(name, peers_path, plan.state)
            reply = client.ask(make, partial(Client.settings, address=where))
        except (Unreachable, ConfigError) as failed:
            fault = failed
            continue
        if reply.mesh != plan.peers.mesh or reply.name == plan.name:
            raise ConfigError(
                f"At {where} answers {reply.name} of mesh {reply.mesh!r}: name another member of "
                f"{plan.peers.mesh!r}."
            )
        return reply.name, parse(reply.settings)
    assert fault is not None
    hint = "" if peer else " Or name another member, as in fednode settings pull NAME."
    raise type(fault)(f"{fault}{hint}")


def _sponsors(plan: NodePlan) -> list[str]:
    if plan.peers.insecure:
        return []
    roster, _, _ = roster_in(plan.state, plan.peers)
    roster.identify(NodeIdentity(plan.state).own().chain)
    return roster.sponsors()


def pulled(plan: NodePlan, config: Path, peer: str, tree: Tree) -> Pull:
    """Return what shared settings change at a node; raise ConfigError if it cannot run under them.

    config: its node.yaml, which need not exist. peer: the node that has these settings.
    """
    found = changes(shared_tree(plan.settings), tree)
    text = config.read_text(encoding="utf-8") if config.exists() else ""
    if not found:
        return Pull(lines=(), text=text)
    text = with_shared(text, tree, str(config))
    source = written(Source(str(config), trees.read(text)[1]), os.environ)
    after = replace(plan, settings=placed(settings_of(source), plan.peers, plan.name))
    if left := changes(shared_tree(after.settings), tree):
        key = left[0][0]
        raise ConfigError(
            f"{source.at(key.split('.'))} sets {key}, whatever node.yaml says: remove it there, "
            "and pull again."
        )
    if faults := disagreements(after):
        raise ConfigError(
            f"This node cannot run under the settings of {peer}, and nothing was written: "
            f"{' '.join(faults)}"
        )
    ends = ANEW.format(runs=plan.state / "runs") if begins_anew(plan, after) else GOES_ON
    return Pull(lines=(*change_lines(found), ends), text=text)


def write(config: Path, text: str) -> Path | None:
    """Write a node.yaml; return the copy of the file before, None if there was none.

    Raise StateError if that fails; then the old file stays.
    """
    if not config.exists():
        put(config, text, "folder", for_all=True)
        return None
    before = free_name(f"{config}.before")
    shutil.copy2(config, before)
    put(config, text, "folder", for_all=bool(config.stat().st_mode & stat.S_IROTH))
    return before
