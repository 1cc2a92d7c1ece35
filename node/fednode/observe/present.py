"""What is wrong with a node now: warnings, and the recorded faults that are not over."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final

from fednode.core.agreement import DIFFERS, differs
from fednode.core.events import ASKS
from fednode.core.members.reachability import UNREACHED
from fednode.core.members.table import GONE, Member
from fednode.core.types import ZERO_SHOT
from fednode.core.view import KernelView
from fednode.observe.events import Events, Logged
from fednode.observe.telemetry import Telemetry
from fednode.units import duration, listed

ROUNDS: Final = 2
"""After so many further rounds, what one round lacked is over."""
SAID_NOW: Final = frozenset({UNREACHED, DIFFERS})
"""Kinds of records, besides peer.*, that status says elsewhere while they hold."""
OF_A_ROUND: Final = ("round.", "start.", "command", "run.", "tune.", "adopt.")
"""How the kinds of records begin that later rounds put behind them."""
FAILED: Final = ("tune.", "adopt.")
"""How the kinds of those records begin that one adopted round puts behind them."""
CHANCE: Final = 0.01
"""Accuracies that differ by no more are as good as each other."""
FIRST_ROUND: Final = "before round"
"""How the note on a node begins that waits for peers since its start."""
CONFIGURATION: Final = "configuration"
"""The reason of refusals that are over once the peer is alive."""
TOLD: Final = frozenset({"alive", "refused"})
"""States of a peer in which its past refusals are over, or said by a warning."""
NAMED: Final = 3
"""Most peers that the sentence on offline peers names."""


def warnings(view: KernelView, telemetry: Telemetry, name: str) -> list[str]:
    """Return what is wrong now, one sentence each; causes stand before what follows of them.

    name: of the node.
    """
    lonely = view.merge_counts.warning(view.by_wish)
    met = ", ".join(peer.name for peer in view.peers if peer.live)
    over = 0 < view.rounds_max <= view.round and view.merge_counts.never(view.by_wish)
    if over and met:
        lonely = (
            f"{view.merge_counts.sentence(view.by_wish)}, and {met} can be reached now: "
            f"fednode reset and fednode start at {name} begin the rounds again"
        )
    away = [] if view.awaited else [*offline(view.peers), *shut(view.peers)]
    texts = [*view.warnings, *away, lonely, *below_zero_shot(telemetry.measured)]
    return [text for text in texts if text]


def offline(peers: Sequence[Member]) -> list[str]:
    """Return a sentence on the peers that do not answer any more; nothing if all do."""
    members = [peer for peer in peers if peer.state not in GONE]
    away = [peer for peer in members if peer.state == "dead"]
    if not away:
        return []
    now = asyncio.get_running_loop().time()
    each = [
        f"{peer.name} ({_heard(peer, now)}" + (f"; {peer.reason})" if peer.reason else ")")
        for peer in away
    ]
    verb = "is" if len(away) == 1 else "are"
    return [f"{len(away)} of {len(members)} peers {verb} offline: {listed(each, NAMED)}"]


def _heard(peer: Member, now: float) -> str:
    return "never heard" if peer.heard_at < 0 else f"last heard {duration(now - peer.heard_at)} ago"


def shut(peers: Sequence[Member]) -> list[str]:
    """Return a sentence on each peer that answers, and whose messages are not taken."""
    away = (peer for peer in peers if peer.state in {"refused", "quarantined"})
    return [f"{peer.name} is {peer.state}: {peer.reason}" for peer in away]


def notes(view: KernelView, name: str) -> list[str]:
    """Return what an operator should know of a node now and is not wrong."""
    sentences = [differs(view.apart)] if view.apart else []
    if view.awaited:
        left = max(0.0, view.start_by - asyncio.get_running_loop().time())
        limit = "without end" if left == math.inf else f"{left:.0f} s more at most"
        same = "give both nodes the same value, or " if "(refused: " in view.awaited else ""
        way = f"{same}begin without: fednode resume {name} --alone"
        begins = f"{FIRST_ROUND} {view.round + 1} this node waits for"
        sentences.append(f"{begins} {view.awaited}, {limit}; {way}")
    return sentences


def alone(view: KernelView) -> bool:
    """Tell whether a node goes on although no peer answers; before its first round it waits."""
    return view.alone and not view.awaited


def below_zero_shot(measured: Mapping[str, float]) -> list[str]:
    """Return a sentence on the accuracies below those of the hand-written prompt, and a remedy.

    A difference of up to CHANCE is not told: on a few hundred images it is a few of them.
    """
    worse = [
        f"{name} {100 * value:.1f} % against {100 * measured[ZERO_SHOT + name]:.1f} %"
        for name, value in measured.items()
        if value < measured.get(ZERO_SHOT + name, 0.0) - CHANCE
    ]
    if not worse:
        return []
    return [
        f"this node is less accurate than the hand-written prompt (zero-shot): {', '.join(worse)}; "
        "try more images (data.shots) or, if the policy tunes prompts, a smaller tuning.lr, fewer "
        "rounds or tuning.knowledge_weight: 8"
    ]


def troubles(events: Events, view: KernelView) -> list[Logged]:
    """Return the latest warnings and errors that are not over, oldest first."""
    if not events.troubles:
        return []
    peers = {peer.name: peer for peer in view.peers}
    adopted = [logged.number for logged in events.kept if logged.record.kind == "round.adopted"]
    return [logged for logged in events.troubles if not _over(logged, peers, adopted)]


def _over(logged: Logged, peers: Mapping[str, Member], adopted: Sequence[int]) -> bool:
    """Tell whether what was recorded is over, or said elsewhere while it lasts.

    adopted: the numbers of the records of adopted rounds.
    """
    kind, facts = logged.record.kind, logged.record.fields
    peer = peers.get(str(facts.get("peer", "")))
    if kind in SAID_NOW or kind.startswith("peer."):
        return True
    if kind == ASKS:
        return peer is not None and peer.state not in GONE
    if kind == "message.refused":
        return peer is not None and peer.state in TOLD and facts.get("reason") == CONFIGURATION
    since = sum(number > logged.number for number in adopted)
    needed = 1 if kind.startswith(FAILED) else ROUNDS
    return kind.startswith(OF_A_ROUND) and since >= needed
