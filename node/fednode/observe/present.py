"""What is wrong with a node now: warnings, and the recorded faults that are not over."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final

from fednode.core import company
from fednode.core.agreement import DIFFERS, differs
from fednode.core.members.reachability import UNREACHED
from fednode.core.members.table import GONE, Member
from fednode.core.types import ZERO_SHOT
from fednode.core.view import KernelView
from fednode.observe.events import Events, Logged
from fednode.observe.telemetry import Telemetry

ROUNDS: Final = 2
"""After so many further rounds, what one round lacked is over."""
SAID_NOW: Final = frozenset({"peer.unreachable", "peer.refused", UNREACHED, DIFFERS})
"""Kinds of records that status says elsewhere while they hold."""
ASKS: Final = "admission.asks"
"""The kind of the record on a site that waits to be admitted; it is over once it is a member."""
RETRIED: Final = frozenset({"tune.failed", "adopt.failed"})
"""Kinds of faults after which the node tries again until it adopts a round."""
OF_A_ROUND: Final = frozenset({"start.late", "command", "run.began"})
"""Kinds of records besides round.* that later rounds put behind them."""
CHANCE: Final = 0.01
"""Accuracies that differ by no more are as good as each other."""
FIRST_ROUND: Final = "before round"
"""How the note on a node begins that waits for peers since its start."""
CONFIGURATION: Final = "configuration"
"""The reason of refusals that are over once the peer is alive."""
TOLD: Final = frozenset({"alive", "refused"})
"""States of a peer in which its past refusals are over, or said by a warning."""


def warnings(view: KernelView, telemetry: Telemetry, name: str) -> list[str]:
    """Return what is wrong now, one sentence each; causes stand before what follows of them.

    name: of the node.
    """
    lonely = company.warning(view.merge_counts, view.by_wish)
    met = ", ".join(peer.name for peer in view.peers if peer.live)
    over = 0 < view.rounds_max <= view.round and company.never(view.merge_counts, view.by_wish)
    if over and met:
        lonely = (
            f"{company.sentence(view.merge_counts, view.by_wish)}, and {met} can be reached now: "
            f"fednode reset and fednode start at {name} begin the rounds again"
        )
    sentences = [lonely] if lonely else []
    if not view.awaited:
        refused = (peer for peer in view.peers if peer.state == "refused")
        sentences += [f"{peer.name} is refused: {peer.reason}" for peer in refused]
    return [*view.warnings, *sentences, *below_zero_shot(telemetry.measured)]


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
        f"the tuned prompts are worse than the hand-written prompt (zero-shot): {', '.join(worse)}"
        "; try a smaller tuning.lr, fewer rounds, tuning.knowledge_weight: 8, or more images "
        "(data.shots)"
    ]


def troubles(events: Events, view: KernelView) -> list[Logged]:
    """Return the latest warnings and errors that are not over, oldest first."""
    if not events.troubles:
        return []
    peers = {peer.name: peer for peer in view.peers}
    adopted = [logged.number for logged in events.kept if logged.record.kind == "round.adopted"]
    return [logged for logged in events.troubles if not _over(logged, peers, adopted, view)]


def _over(
    logged: Logged, peers: Mapping[str, Member], adopted: Sequence[int], view: KernelView
) -> bool:
    """Tell whether what was recorded is over, or said elsewhere while it lasts.

    While the first round waits, a note names the peers that have not answered yet.

    adopted: the numbers of the records of adopted rounds.
    """
    kind, facts = logged.record.kind, logged.record.fields
    peer = peers.get(str(facts.get("peer", "")))
    if kind in SAID_NOW:
        return True
    if kind == ASKS:
        return peer is not None and peer.state not in GONE
    if kind.startswith("peer."):
        expected = bool(view.awaited) and peer is not None and peer.heard_at < 0
        return expected or peer is None or kind != f"peer.{peer.state}"
    if kind == "message.refused":
        return peer is not None and peer.state in TOLD and facts.get("reason") == CONFIGURATION
    since = sum(number > logged.number for number in adopted)
    if kind in RETRIED:
        return since > 0
    return (kind in OF_A_ROUND or kind.startswith("round.")) and since >= ROUNDS
