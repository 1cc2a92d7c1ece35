"""Why a caller is refused, in the one frame that it gets before its connection ends.

A caller that proved its key learns the reason itself: its operator cannot read the log of another
site. The frame is a GOAWAY of HTTP/2 (RFC 9113, section 6.8) ahead of all other frames, so a caller
that does not know of this ends the connection, as after a hang-up. It holds one of the words of
WHYS; for a revoked key the signed revocation follows, which the caller checks, and for what the
clock decided the time of the other end, in seconds.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Final, Literal, get_args

Why = Literal["revoked", "ended", "unknown", "clock"]
WHYS: Final[tuple[Why, ...]] = get_args(Why)
PROOF_MAX: Final = 1024
"""The most bytes of a proof; node/fednode/identity/lease.py makes none with more."""
_HEAD: Final = 9
_GOAWAY: Final = b"\x07" + bytes(5)  # kind, flags, stream
_NO_STREAM: Final = bytes(7) + b"\x0c"  # last stream: none; code: INADEQUATE_SECURITY
_MARK: Final = b"fednode-refusal/1 "
Learn = Callable[[bytes], bool]
"""Takes the proof of a revocation; tells whether it is of this node's own key."""
CLOCKS_S: Final = 7200.0
"""By how much two clocks may differ before that counts as the cause."""
REMEDY: Final = "ask for a new link, or ask the founder why"


def packed(why: Why, proof: bytes = b"") -> bytes:
    """Return the frame that tells a caller why it is refused."""
    said = _NO_STREAM + _MARK + why.encode() + (b" " + proof if proof else b"")
    return len(said).to_bytes(3, "big") + _GOAWAY + said


def unpacked(data: bytes) -> tuple[Why, bytes] | None:
    """Return why a caller is refused, and the proof; None if the first bytes are no such frame."""
    at = _HEAD + len(_NO_STREAM)
    if data[3:_HEAD] != _GOAWAY or not data[at:].startswith(_MARK):
        return None
    if len(data) != _HEAD + int.from_bytes(data[:3], "big") or len(data) > at + 64 + PROOF_MAX:
        return None
    word, _, proof = data[at + len(_MARK) :].partition(b" ")
    return next(((why, proof) for why in WHYS if why.encode() == word), None)


def at(now: float) -> bytes:
    """Return the time that goes with a refusal which the clock decided."""
    return str(int(now)).encode()


def sentence(
    where: str,
    refusal: tuple[Why, bytes] | None,
    learn: Learn,
    clock: Callable[[], float] = time.time,
) -> str:
    """Return why the other end refuses this node's key. refusal: None if it only hung up."""
    if refusal is None:
        return (
            f"{where} hung up right after the TLS handshake and gave no reason: if it hangs up "
            "again, its log says why"
        )
    why, proof = refusal
    apart = skew(proof, clock())
    if why == "clock":
        cause = f"its clock is {apart} this machine's: set the clock that is wrong, then"
        if not apart:
            cause = "it was made while a clock was wrong:"
        text = f"{where} says that this node's certificate does not hold now"
        return f"{text}; {cause} start this node again"
    if why == "revoked" and learn(proof):
        return "the mesh revoked this node's key: ask for a new link"
    if why == "revoked":
        return f"{where} says that this node's key was revoked, and has no proof of it: {REMEDY}"
    if why == "ended":
        text = f"{where} says that this node's lease has ended: start the node again, or {REMEDY}"
        return text + (
            f". Its clock is {apart} this machine's: is one of them wrong?" if apart else ""
        )
    return f"{where} does not know this node's key: {REMEDY}"


def skew(theirs: bytes | float, now: float) -> str:
    """Return by how much another clock differs from this one, such as "240 h ahead of".

    "" if that is at most CLOCKS_S, or not told. theirs: its time, or as in `at`.
    """
    ahead = 0.0
    with contextlib.suppress(ValueError, OverflowError):
        ahead = float(theirs) - now
    if not CLOCKS_S < abs(ahead) < math.inf:
        return ""
    return f"{abs(ahead) / 3600:,.0f} h {'ahead of' if ahead > 0 else 'behind'}"
