"""Settings that peers must agree on: their fingerprint, and the sentence for peers that differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fednode.core.types import Tensors

DIFFERENCES_SHOWN = 4


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return SHA-256 over the sorted facts, in hexadecimal."""
    text = "".join(f"{key}\0{facts[key]}\0" for key in sorted(facts))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(ours: Mapping[str, str], theirs: Mapping[str, str], sender: str) -> str:
    """Return in which facts a peer differs and with which values; "" if no difference is seen."""
    missing = "not set"
    parts = [
        f"{key} is {ours.get(key, missing)} here and {theirs.get(key, missing)} at {sender!r}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    if len(parts) > DIFFERENCES_SHOWN:
        more = len(parts) - DIFFERENCES_SHOWN
        parts = [*parts[:DIFFERENCES_SHOWN], f"and {more} more"]
    return "; ".join(parts)


def contributors(senders: Mapping[str, Tensors]) -> str:
    """Return the digest of the senders and their contributions, independent of arrival order."""
    return fingerprint({name: tensors.digest for name, tensors in senders.items()})
