"""Who answers: a small table of peers, fed by hellos and by all other traffic.

    unknown -> alive -> suspect -> dead        refused: answers, but speaks another configuration

Every peer gets a hello each probe_interval_s. One that fails makes the peer suspect,
suspicion_probes in a row make it dead; anything that gets through makes it alive again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node.core.settings import MembershipSettings


@dataclass(frozen=True, slots=True)
class PeerView:
    """One peer as this node sees it; heard_at is on the host's clock, negative when never.

    gone: it said goodbye, and has not spoken since.
    """

    name: str
    state: str = "unknown"
    failures: int = 0
    heard_at: float = -1.0
    round: int = 0
    reason: str = ""
    gone: bool = False


class Membership:
    """The table of peers. Each change returns the peer's state before and after."""

    def __init__(self, peers: tuple[str, ...], settings: MembershipSettings) -> None:
        self._settings = settings
        self._peers = {name: PeerView(name) for name in sorted(peers)}

    def __contains__(self, name: str) -> bool:
        return name in self._peers

    def view(self) -> tuple[PeerView, ...]:
        """Return all peers, sorted by name."""
        return tuple(self._peers.values())

    def live(self) -> tuple[str, ...]:
        """Return the peers that can be sent to: alive, or suspect and not yet given up."""
        return tuple(n for n, peer in self._peers.items() if peer.state in {"alive", "suspect"})

    def heard(self, name: str, now: float, round_number: int | None = None) -> tuple[str, str]:
        """Note that a peer spoke, in a round, or that it answered (no round).

        An answer that was under way when it said goodbye does not bring it back; speaking does.
        """
        held = self._peers[name]
        if held.gone and round_number is None:
            return held.state, held.state
        number = held.round if round_number is None else round_number
        self._peers[name] = PeerView(name, "alive", 0, now, number)
        return held.state, "alive"

    def failed(self, name: str, reason: str) -> tuple[str, str]:
        """Note that a peer did not answer."""
        held = self._peers[name]
        failures = held.failures + 1
        state = "dead" if failures >= self._settings.suspicion_probes else "suspect"
        if held.state in {"unknown", "dead", "refused"} and state == "suspect":
            state = held.state
        why = held.reason if held.state == "dead" else reason  # how it died, not that it still is
        self._peers[name] = replace(held, state=state, failures=failures, reason=why)
        return held.state, state

    def busy(self, name: str, reason: str) -> tuple[str, str]:
        """Note that a peer is there but takes nothing now: it loads, or has too much to do.

        That makes nobody dead, and nobody alive: round one waits for peers that can take part.
        """
        held = self._peers[name]
        why = held.reason if held.gone else reason
        self._peers[name] = replace(held, failures=0, reason=why)
        return held.state, held.state

    def refused(self, name: str, now: float, reason: str) -> tuple[str, str]:
        """Note that a peer answers but one of the two refuses the other."""
        held = self._peers[name]
        self._peers[name] = replace(held, state="refused", failures=0, heard_at=now, reason=reason)
        return held.state, "refused"

    def left(self, name: str, now: float) -> tuple[str, str]:
        """Note that a peer said goodbye."""
        held = self._peers[name]
        self._peers[name] = replace(
            held, state="dead", heard_at=now, reason="it left the mesh", gone=True
        )
        return held.state, "dead"
