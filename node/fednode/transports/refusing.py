"""Why a caller is refused, in the one frame that it gets before its connection ends.

A caller that proved its key learns the reason itself: its operator cannot read the log of another
site. The frame is a GOAWAY of HTTP/2 (RFC 9113, section 6.8) ahead of all other frames, so a caller
that does not know of this ends the connection, as after a hang-up. It holds one of the words of
WHYS, and for a revoked key the signed revocation, which the caller checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, get_args

Why = Literal["revoked", "ended", "unknown"]
WHYS: Final[tuple[Why, ...]] = get_args(Why)
PROOF_MAX: Final = 1024
"""The most bytes of a proof; node/fednode/identity/lease.py makes none with more."""
_HEAD: Final = 9
_GOAWAY: Final = b"\x07" + bytes(5)  # kind, flags, stream
_NO_STREAM: Final = bytes(7) + b"\x0c"  # last stream: none; code: INADEQUATE_SECURITY
_MARK: Final = b"fednode-refusal/1 "
Learn = Callable[[bytes], bool]
"""Takes the proof of a revocation; tells whether it is of this node's own key."""
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


def sentence(where: str, refusal: tuple[Why, bytes] | None, learn: Learn) -> str:
    """Return why the other end refuses this node's key. refusal: None if it only hung up."""
    if refusal is None:
        return (
            f"{where} hung up right after the TLS handshake: it refuses this node's key. Perhaps "
            f"the key was revoked or its lease ended: {REMEDY}, whose log says why"
        )
    why, proof = refusal
    if why == "revoked" and learn(proof):
        return "the mesh revoked this node's key: ask for a new link"
    if why == "revoked":
        return f"{where} says that this node's key was revoked, and has no proof of it: {REMEDY}"
    if why == "ended":
        return f"{where} says that this node's lease has ended: start the node again, or {REMEDY}"
    return f"{where} does not know this node's key: {REMEDY}"
