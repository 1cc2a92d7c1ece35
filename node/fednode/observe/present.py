"""What is wrong with a node now: warnings, and the recorded faults that are not over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from fednode.core.agreement import DIFFERS, differs
from fednode.core.members.reach import QUIET, UNREACHED
from fednode.core.members.table import Member
from fednode.core.types import ZERO_SHOT
from fednode.core.view import KernelView
from fednode.observe.events import Events, Logged
from fednode.observe.telemetry import Telemetry

ROUNDS: Final = 2
"""After so many further rounds, what one round lacked is over."""
SAID_NOW: Final = frozenset({"peer.unreachable", UNREACHED, QUIET, DIFFERS})
"""Kinds of records that the node's warnings or notes repeat while they hold."""
RETRIED: Final = frozenset({"tune.failed", "adopt.failed"})
"""Kinds of faults after which the node tries again until it adopts a round."""
OF_A_ROUND: Final = frozenset({"start.late", "command"})
"""Kinds of records besides round.* that later rounds put behind them."""
CHANCE: Final = 0.01
"""Accuracies that differ by no more are as good as each other."""
FIRST_ROUND: Final = "the first round waits for"
"""How the note on a node begins whose first round has not begun."""
SETTLED: Final = "configuration"
"""The reason of refusals that are over once the peer is alive."""


def warnings(view: KernelView, telemetry: Telemetry) -> list[str]:
    """Return what is wrong now, one sentence each."""
    return [*view.warnings, *below_zero_shot(telemetry.measured)]


def notes(view: KernelView) -> list[str]:
    """Return what an operator should know of a node now and is not wrong."""
    found = [differs(view.apart)] if view.apart else []
    if view.awaited:
        left = max(0.0, view.start_by - asyncio.get_running_loop().time())
        found.append(f"{FIRST_ROUND} {view.awaited}, {left:.0f} s more at most")
    return found


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
    peers = {one.name: one for one in view.peers}
    adopted = [one.number for one in events.kept if one.record.kind == "round.adopted"]
    return [one for one in events.troubles if not _over(one, peers, adopted, view)]


def _over(
    one: Logged, peers: Mapping[str, Member], adopted: Sequence[int], view: KernelView
) -> bool:
    """Tell whether what was recorded is over, or said elsewhere while it lasts.

    While the first round waits, a note names the peers that have not answered yet.

    adopted: the numbers of the records of adopted rounds.
    """
    kind, facts = one.record.kind, one.record.fields
    peer = peers.get(str(facts.get("peer", "")))
    if kind in SAID_NOW:
        return True
    if kind.startswith("peer."):
        expected = bool(view.awaited) and peer is not None and peer.heard_at < 0
        return expected or peer is None or kind != f"peer.{peer.state}"
    if kind == "message.refused":
        return peer is not None and peer.state == "alive" and facts.get("reason") == SETTLED
    since = sum(number > one.number for number in adopted)
    if kind in RETRIED:
        return since > 0
    return (kind in OF_A_ROUND or kind.startswith("round.")) and since >= ROUNDS
