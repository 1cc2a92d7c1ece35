"""The checked settings of one node, and the parts of a running node that are made from them."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fednode import registry
from fednode.app.state_dir import ROOT
from fednode.conformance import require_hooks
from fednode.core.policy import start_seed
from fednode.core.settings import Barrier
from fednode.data.base import NodeData, ProgressFn, no_progress
from fednode.errors import AddressError, ConfigError
from fednode.identity.identity import chain_in
from fednode.learn.learner import Learner
from fednode.learn.quadratic import QuadraticLearner, QuadraticSums
from fednode.learn.settings import AUTO
from fednode.policies.class_sums import CLASSES_MAX
from fednode.settings.peers import PeerEntry, Peers, address_faults, load_peers
from fednode.settings.read import (
    NAME,
    NAME_RULE,
    NAME_VARIABLE,
    Chosen,
    Settings,
    load_settings,
    start_of,
    validation_fault,
)
from fednode.storage.store import Store, difference, has_rounds, newest
from fednode.transports.address import NO_PROXY, RELAY, check_proxy, parse

if TYPE_CHECKING:  # the accountant's library takes a moment to load
    from fednode.learn.privacy import Privacy

SUMS: Final = "gda"
"""The policy whose closed-form learner computes class sums."""
READS: Final = 77
"""Tokens that CLIP reads, for a learner of formulas, which has no model."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The checked settings of one node: everything that `start` needs."""

    name: str
    settings: Settings
    peers: Peers
    state: Path

    @property
    def policy(self) -> Chosen:
        """The policy that the node runs, with its checked settings."""
        return self.settings.policy

    @property
    def address(self) -> str:
        """The address at which peers reach this node: `advertise`, or the one in peers.yaml."""
        return self.settings.advertise or self.peers.entry(self.name).address

    @property
    def listen(self) -> str:
        """The address on which this node listens: `listen`, or its address; `relay` for none."""
        return self.settings.listen or self.address

    @property
    def others(self) -> tuple[PeerEntry, ...]:
        others = [peer for peer in self.peers.peers if peer.name != self.name]
        return tuple(sorted(others, key=lambda peer: peer.name))

    @property
    def remote(self) -> bool:
        """Whether a listed peer's address is not of this machine: no loopback, another host."""
        own = parse(self.address).host if self.address else ""
        addresses = (parse(peer.address) for peer in self.others)
        return any(
            address.relayed or (not address.loopback and address.host != own)
            for address in addresses
        )

    @property
    def compares_classes(self) -> bool:
        """Whether peers should have the same class names: not if one folder is divided by class."""
        return self.settings.tuning.kind == "torch" and self.settings.data.partition.how == "none"

    @property
    def mode(self) -> Barrier:
        """The barrier of the rounds: `rounds.mode` if set, else the policy's default."""
        return self.settings.rounds.mode or self.policy.kind.modes[0]


def name_of(peers: Peers, settings: Settings, name: str | None, state: Path | None) -> str:
    """Return a node's own name: of its certificate, by --name, by its settings, or the host's.

    state: the state directory, if it is given. A node with keys need not be listed if `advertise`
    gives its address. Raise ConfigError if certificate and --name differ, or if the name has no
    place in the mesh.
    """
    chain = None if peers.insecure or state is None else chain_in(state)
    certified = chain.own.name if chain else ""
    if name is not None and certified not in {"", name}:
        raise ConfigError(
            f"The certificate in {state} is for {certified!r}, and --name says {name!r}: leave "
            "--name out, or give the state directory of that node."
        )
    chosen = certified or name or settings.name or os.environ.get(NAME_VARIABLE)
    chosen = chosen or socket.gethostname()
    if peers.insecure or any(peer.name == chosen for peer in peers.peers):
        return peers.entry(chosen).name
    if not NAME.fullmatch(chosen):
        raise ConfigError(f"This node's name is {chosen!r}; {NAME_RULE}")
    if settings.advertise is None:
        raise ConfigError(
            f"peers.yaml does not list {chosen!r}, so it must be said where others reach it: set "
            "advertise to host:port."
        )
    return chosen


def make(
    peers_path: Path,
    config: Path | None = None,
    name: str | None = None,
    flags: Sequence[str] = (),
    state: Path | None = None,
) -> NodePlan:
    """Return the plan of a node; raise ConfigError with all that is wrong in its files.

    If the state directory is given and holds a certificate, its name is the node's.
    """
    faults, loaded = list[str](), list[Any]()
    for load in (
        partial(load_settings, config, os.environ, flags),
        partial(load_peers, peers_path),
    ):
        try:
            loaded.append(load())
        except ConfigError as fault:
            faults.append(str(fault))
    if faults:
        raise ConfigError("\n".join(faults))
    settings, peers = loaded
    state = state or (Path(settings.state_dir) if settings.state_dir else None)
    own = name_of(peers, settings, name, state)
    return checked(own, settings, peers, state or Path.home() / ROOT / peers.mesh / own)


def checked(name: str, settings: Settings, peers: Peers, state: Path) -> NodePlan:
    """Return the plan of a node; raise ConfigError if its settings do not fit its mesh."""
    plan = NodePlan(name, placed(settings, peers, name), peers, state)
    if faults := disagreements(plan):
        raise ConfigError("\n".join(faults))
    return plan


def plan_in(folder: Path) -> NodePlan:
    """Return the plan of the node whose files lie in a folder; raise ConfigError as `make`."""
    config = folder / "node.yaml"
    return make(folder / "peers.yaml", config if config.is_file() else None)


def disagreements(plan: NodePlan) -> list[str]:
    settings, rounds = plan.settings, plan.settings.rounds
    kind, config, faults = plan.policy.kind, plan.policy.config, list[str]()
    if settings.topology.kind != "full" and kind.shared_state:
        faults.append(
            f"topology.kind is {settings.topology.kind!r}; all nodes of policy {plan.policy.name} "
            "merge the same contributions, which takes 'full'."
        )
    settings_fault = kind.settings_fault(config, rounds, settings.data.domain)
    faults += [settings_fault] if settings_fault else []
    if settings.privacy.clip is not None and plan.policy.name == SUMS:
        faults.append(
            f"privacy.clip is {settings.privacy.clip:g}, and policy {SUMS} sends sums, not changes "
            "of prompts: remove privacy.clip; privacy.least_images says what may be sent."
        )
    if plan.policy.name == SUMS and not settings.data.tell_classes:
        faults.append(
            f"data.tell_classes is false, and policy {SUMS} matches class sums by name, so members "
            "learn the names: set data.tell_classes to true, or take another policy."
        )
    if settings.tuning.kind == "torch":  # the closed-form learner needs no images
        unjudged = validation_fault(settings, settings.data.validation)
        faults += [unjudged] if unjudged else []
    faults += reach_faults(plan)
    for key in ("listen", "advertise"):
        address = getattr(settings, key)
        insecure = plan.peers.insecure
        faults += address_faults(key, plan.name, address, insecure) if address else []
    return faults


def reach_faults(plan: NodePlan) -> list[str]:
    """Return the faults of how the node reaches its peers, as sentences."""
    settings, faults = plan.settings, list[str]()
    try:
        check_proxy(settings.proxy or NO_PROXY)
    except AddressError as fault:
        faults.append(f"proxy: {fault}.")
    relayed = plan.address == RELAY
    if relayed and not plan.peers.relays:
        faults.append(
            f"{plan.name!r} is reached through relays (by its address), and peers.yaml lists none: "
            "add `relays`, or set advertise to host:port."
        )
    if settings.relay.serve and (plan.peers.insecure or relayed):
        faults.append(
            "relay.serve is true, and a relay needs keys and a port that the others reach: remove "
            "it, or set advertise to host:port."
        )
    return faults


def placed(settings: Settings, peers: Peers, name: str) -> Settings:
    """Fill in the node's share of a common data set: its place in peers.yaml."""
    share = settings.data.partition
    if share.how == "none" or (share.index is not None and share.count is not None):
        return settings
    order = [peer.name for peer in peers.peers]
    if name not in order:
        raise ConfigError(
            f"data.partition goes by the place in peers.yaml, which does not list {name!r}: set "
            "data.partition.index and data.partition.count."
        )
    share = replace(
        share,
        index=order.index(name) if share.index is None else share.index,
        count=len(order) if share.count is None else share.count,
    )
    return replace(settings, data=replace(settings.data, partition=share))


def facts_of(plan: NodePlan, learner: Learner) -> dict[str, str]:
    """Return the settings that all nodes of a mesh must agree on."""
    facts = {f"policy.{key}": str(value) for key, value in asdict(plan.policy.config).items()}
    if plan.policy.kind.shared_state:  # all nodes start from and draw the same numbers
        facts["seed"] = str(plan.settings.seed)
        facts["rounds.max"] = str(plan.settings.rounds.max)
    tuning = plan.settings.tuning
    usual = str(plan.policy.kind.tuning.get("template", AUTO))
    words, theirs = (plan.settings.model.worded(text) for text in (tuning.template, usual))
    if words != theirs:  # the policy's own sentence is no fact
        facts["tuning.template"] = words
    chosen = plan.settings.topology
    if chosen.kind != "full":
        facts |= {f"topology.{key}": str(value) for key, value in asdict(chosen).items()}
    return {
        **facts,
        "mesh": plan.peers.mesh,
        "policy.name": plan.policy.name,
        "rounds.mode": plan.mode,
        "tuning.context_length": str(tuning.context_length),
        "backbone": learner.backbone,
        "schema": learner.schema,
    }


def free_facts(plan: NodePlan) -> frozenset[str]:
    """Return the names of facts that a later start on the same state directory may change.

    rounds.max may change, so that a run gets more rounds, unless the policy's averages weigh a
    round by it (such a policy refuses runs without an end). tuning.template and the topology may
    change on all nodes together.
    """
    endless = replace(plan.settings.rounds, max=0)
    chosen, domain = plan.policy, plan.settings.data.domain
    weighs = chosen.kind.settings_fault(chosen.config, endless, domain)
    free = {"tuning.template", *(f"topology.{key}" for key in asdict(plan.settings.topology))}
    return frozenset(free if weighs else free | {"rounds.max"})


def tie(store: Store | None, plan: NodePlan, facts: Mapping[str, str]) -> str:
    """Tie a new state directory to the node's settings; return why its rounds must begin anew.

    "" if they go on. store: None only looks, because the node runs. Raise StateError if the
    directory is of another node or mesh.
    """
    own, free = {"name": plan.name, **facts}, free_facts(plan)
    if store is not None:
        return store.bind(own, free)
    return difference(plan.state, newest(plan.state)[0].settings, own, free)


def privacy_of(plan: NodePlan, learner: Learner) -> Privacy:
    """Return what counts a node's results, and clips and blurs them if privacy is on.

    Raise StateError if privacy is on and the account of earlier rounds is missing.
    """
    from fednode.learn.privacy import Privacy

    settings = plan.settings
    seed = start_seed(start_of(settings), settings.seed, plan.name)
    initial, rounds = learner.initial(seed), has_rounds(plan.state)
    return Privacy(settings.privacy, initial, plan.state, has_rounds=rounds)


def sums_fault(plan: NodePlan, learner: Learner) -> str:
    """Return why class sums of this node's images cannot be sent; "" if they can.

    The node would find out in its first round. A learner of formulas has no images.
    """
    names, _ = learner.announced
    if not _sends_sums(plan) or len(names) <= CLASSES_MAX:
        return ""
    return (
        f"This node has {len(names):,} classes, and a message names at most {CLASSES_MAX:,}, "
        "so its peers would get nothing of it: name the classes to use in data.classes."
    )


def sums_warning(plan: NodePlan, learner: Learner) -> str:
    """Return that this node sends no class, or more classes than count; "" if neither is so."""
    if not _sends_sums(plan) or not learner.samples:
        return ""
    least, most = plan.settings.privacy.least_images, plan.policy.config.classes_max
    sent = len(learner.announced[0])
    if sent > most:
        return (
            f"This node has {sent:,} classes, and policy.classes_max is {most:,}: its peers leave "
            "out the others, unless half of the nodes have as many. Set it higher on all nodes, or "
            "name the classes to use in data.classes."
        )
    if sent:
        return ""
    return (
        f"None of this node's {len(learner.classes)} classes has privacy.least_images ({least}) "
        "training images, so the node sends no sums and its peers learn nothing from it: add "
        "images, raise data.shots, or lower privacy.least_images."
    )


def _sends_sums(plan: NodePlan) -> bool:
    return plan.policy.name == SUMS and plan.settings.tuning.kind == "torch"


def learner_of(
    settings: Settings,
    name: str,
    loaded: NodeData | None = None,
    progress: ProgressFn = no_progress,
) -> Learner:
    """Return the node's learner; loads images and model, which takes seconds.

    loaded: the splits, if they were loaded already. progress: of the loading, and of encoding.
    """
    if settings.tuning.kind == "closed-form":
        tuning = settings.tuning
        if settings.policy.name == SUMS:
            return QuadraticSums(name)
        return QuadraticLearner(name, rows=tuning.fitted(READS).vectors, step_s=tuning.step_s)
    progress("loading torch", 0, 0)
    from fednode.learn.build import build

    objective = registry.prompt_module(settings.policy.name)
    learner = build(
        settings.model,
        settings.data,
        settings.tuning,
        settings.cache,
        objective,
        settings.policy.config,
        loaded,
        progress,
        settings.privacy.least_images,
    )
    require_hooks(settings.policy.kind, settings.policy.config, learner.module)
    return learner
