"""Take over the shared settings of another node: ask it, say what differs, write node.yaml."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

from fednode.app import client
from fednode.app.node_yaml import with_shared
from fednode.app.plan import NodePlan, disagreements, placed
from fednode.errors import ConfigError, Unreachable
from fednode.observe.client import Client
from fednode.settings import trees
from fednode.settings.read import Source, Tree, settings_of, written
from fednode.settings.shared import changes, parse, shared_tree
from fednode.storage.disk import put


def ask(plan: NodePlan, peers_path: Path, peer: str | None) -> tuple[str, Tree]:
    """Return the node that was asked for its shared settings, and its answer.

    peer: its name or address; None asks the first other node of peers.yaml, at a site that joined
    the sponsor that admitted it. Raise ConfigError if there is nobody to ask, FednodeError if
    nobody answers.
    """
    listed = [entry.name for entry in plan.peers.peers if entry.name != plan.name]
    if peer is None and not listed:
        raise ConfigError(
            "peers.yaml lists no other node, so there is nobody to ask: name the member whose "
            "settings this node takes over, as in fednode settings pull NAME."
        )
    make, ((_, where),) = client.reach(peer or listed[0], peers_path, plan.state)
    try:
        reply = client.ask(make, partial(Client.settings, address=where))
    except Unreachable as fault:
        hint = "Or name another member, as in fednode settings pull NAME."
        raise type(fault)(f"{fault} {hint}") from None
    if reply.mesh != plan.peers.mesh or reply.name == plan.name:
        raise ConfigError(
            f"At {where} answers {reply.name} of mesh {reply.mesh!r}: name another member of "
            f"{plan.peers.mesh!r}."
        )
    return reply.name, parse(reply.settings)


def pulled(plan: NodePlan, config: Path, peer: str, tree: Tree) -> tuple[list[str], str]:
    """Return what shared settings change at a node, a line for each key, and the new node.yaml.

    config: its node.yaml, which need not exist. peer: the node that has these settings. Raise
    ConfigError if the node cannot run under them.
    """
    found = changes(shared_tree(plan.settings), tree)
    before = config.read_text(encoding="utf-8") if config.exists() else ""
    if not found:
        return [], before
    text = with_shared(before, tree, str(config))
    source = written(Source(str(config), trees.read(text)[1]), os.environ)
    after = replace(plan, settings=placed(settings_of(source), plan.peers, plan.name))
    for key in changes(shared_tree(after.settings), tree):
        raise ConfigError(
            f"{source.at(key.split('.'))} sets {key}, whatever node.yaml says: remove it there, "
            "and pull again."
        )
    if faults := disagreements(after):
        raise ConfigError(
            f"This node cannot run under the settings of {peer}, and nothing was written: "
            f"{' '.join(faults)}"
        )
    lines = list(found.values())
    if "\n#" in f"\n{before}" and "\n#" not in f"\n{text}":
        lines.append(f"{config} is written anew, without its comments; a copy of it is kept.")
    return lines, text


def write(config: Path, text: str) -> Path | None:
    """Write a node.yaml; return the copy of the file before, None if there was none.

    Raise StateError if that fails; then the old file stays.
    """
    if not config.exists():
        put(config, text, "folder", for_all=True)
        return None
    names = (f"{config}.before{number or ''}" for number in itertools.count())
    before = next(path for path in map(Path, names) if not path.exists())
    shutil.copy2(config, before)
    put(config, text, "folder", for_all=bool(config.stat().st_mode & stat.S_IROTH))
    return before
