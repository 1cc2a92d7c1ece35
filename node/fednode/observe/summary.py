"""A status in words: what the page and `fednode status` both say of a node.

All of it is made of a reply, so no reader learns more than the reply holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fednode.core.members.table import GONE
from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.core.view import Life, figures, is_share
from fednode.evaluation.gain import is_possible, mesh_sentence
from fednode.units import duration, listed, size
from fednode.wire.gen.status_pb2 import Gain, StatusReply

CLASSES_SHOWN: Final = 6
LEFT_MAX_S: Final = 1e8
"""A run that takes longer has no estimate."""
STATES: Final[Mapping[str, str]] = {"dead": "offline"}
"""The words for states of a peer that are not their names."""


def life(reply: StatusReply) -> str:
    """Return a node's life; a node that is paused after its last round has finished, too."""
    through = 0 < reply.rounds_max <= reply.round
    return f"{Life.FINISHED}, {reply.life}" if reply.life == Life.PAUSED and through else reply.life


def headline(reply: StatusReply) -> str:
    """Return what a node does now, such as "round 3 of 50, tuning (step 2 of 8)"."""
    if reply.life == Life.LOADING:
        return reply.working or "model and images"
    text = f"round {rounds(reply, ' of ')}, {reply.phase}"
    if reply.steps:
        text += f" (step {reply.step} of {reply.steps})"
    left = reply.round_s * (reply.rounds_max - reply.round)
    if reply.life == Life.RUNNING and 0 < left < LEFT_MAX_S:
        text += f", about {duration(left)} left"
    alone = "no peer takes part: it goes on alone" if reply.alone else ""
    return "; ".join(part for part in (text, reply.working, alone) if part)


def rounds(reply: StatusReply, between: str = "/") -> str:
    """Return the number of rounds done, and the total if there is one."""
    return f"{reply.round}{between}{reply.rounds_max}" if reply.rounds_max else str(reply.round)


def facts(reply: StatusReply) -> list[tuple[str, str]]:
    """Return the titles and texts of what is known of a node; the first ones change most often."""
    training = {key: value for key, value in reply.metrics.items() if not is_share(key)}
    best = f"round {reply.best_round}, validation {_percent(reply.best_validation)}"
    images = f"{reply.samples} for training; {listed(list(reply.classes), CLASSES_SHOWN)}"
    refused = ", ".join(f"{reply.refused[key]} ({key})" for key in sorted(reply.refused))
    model = reply.model + (f" ({reply.backbone[:12]})" if reply.backbone else "")
    rows = [
        ("merged", reply.together),
        ("training", figures(training)),
        *((f"{test} accuracy", accuracy(reply, test)) for test in SPLITS),
        ("best", best if reply.best_round else ""),
        ("images", images if reply.classes else ""),
        ("peers", alive(reply, " alive")),
        *((f"{title} since the start", _traffic(reply, way)) for title, way in WAYS),
        ("messages not taken", refused),
        ("mesh", reply.mesh),
        ("policy", reply.policy),
        ("model", model),
        ("up", duration(reply.uptime_s)),
    ]
    return [(title, text) for title, text in rows if text]


WAYS: Final = (("sent", "out"), ("received", "in"))


def paths(reply: StatusReply) -> list[str]:
    """Return a sentence on each relay, and on why calls to peers go through relays."""
    texts = [
        f"relay {relay.address}: {relay.state}" + (f" ({relay.why})" if relay.why else "")
        for relay in reply.relays
    ]
    reasons: dict[str, list[str]] = {}
    for peer in reply.peers:
        if peer.path_why:
            reasons.setdefault(peer.path_why, []).append(peer.name)
    return texts + [f"relayed to {', '.join(names)}: {why}" for why, names in reasons.items()]


def _traffic(reply: StatusReply, way: str) -> str:
    if not (messages := getattr(reply.traffic, f"messages_{way}")):
        return ""
    whole, tensors, wire = (
        size(getattr(reply.traffic, f"{kind}_{way}")) for kind in ("serialized", "payload", "wire")
    )
    return f"{messages:,} messages, {whole} (tensors {tensors}, on the wire about {wire})"


def mesh_gain(gains: Iterable[Gain]) -> str:
    """Return what nodes gain together over training alone, by what each says; "" of fewer than two.

    Counts that cannot be are left out.
    """
    sites = [(gain.images, gain.difference, gain.squares) for gain in gains]
    possible = [counts for counts in sites if is_possible(counts)]
    return mesh_sentence(possible) if len(possible) > 1 else ""


def accuracy(reply: StatusReply, test: str) -> str:
    """Return an accuracy with its round and that of the hand-written prompt; "" if not measured."""
    if test not in reply.measured:
        return ""
    more = [f"round {reply.measured_round}"] if reply.measured_round else []
    if ZERO_SHOT + test in reply.measured:
        more.append(f"zero-shot {_percent(reply.measured[ZERO_SHOT + test])}")
    return _percent(reply.measured[test]) + (f" ({', '.join(more)})" if more else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def alive(reply: StatusReply, word: str = "") -> str:
    """Return how many of a node's peers are alive, how many there are, and how many are relayed.

    Peers that left or whose keys are revoked are not counted. word: stands after the count.
    """
    relayed = sum(peer.path.startswith("relay") for peer in reply.peers)
    through = f", {relayed} relayed" if relayed else ""
    members = [peer for peer in reply.peers if peer.state not in GONE]
    return f"{sum(peer.state == 'alive' for peer in members)}/{len(members)}{word}{through}"
