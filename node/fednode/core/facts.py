"""Settings that peers must agree on: their fingerprint, and the sentence for peers that differ."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from fednode.core.types import Tensors

DIFFERENCES_SHOWN = 4
SHAPES: Final = "schema"  # the fact that holds the digest of the names and shapes of the prompts
DIGEST: Final = re.compile("[0-9a-f]{64}")


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return SHA-256 over the sorted facts, in hexadecimal."""
    text = "".join(f"{key}\0{facts[key]}\0" for key in sorted(facts))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(held: Mapping[str, Mapping[str, str]]) -> str:
    """Return in which facts two nodes differ and with which values; "" if no difference is seen.

    held: the facts of each node, by its name; both nodes say the same sentence. Settings come
    first. Of a digest the first characters are named, and the digest of the prompts' shapes only if
    nothing else differs.
    """
    (node, ours), (other, theirs) = sorted(held.items())
    differ = [key for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)]
    keys = [key for key in differ if key != SHAPES] or differ
    keys.sort(key=lambda key: bool(DIGEST.fullmatch(ours.get(key, ""))))
    parts = [
        f"{key} is {value_of(ours, key)} at {node!r} and {value_of(theirs, key)} at {other!r}"
        for key in keys
    ]
    if len(parts) > DIFFERENCES_SHOWN:
        more = len(parts) - DIFFERENCES_SHOWN
        parts = [*parts[:DIFFERENCES_SHOWN], f"and {more} more"]
    return "; ".join(parts)


def value_of(facts: Mapping[str, str], key: str) -> str:
    """Return a value for people: of a digest the first characters."""
    value = facts.get(key, "not set")
    return value[:12] if DIGEST.fullmatch(value) else value


def merged_digest(senders: Mapping[str, Tensors]) -> str:
    """Return the digest of the senders and their contributions, independent of arrival order."""
    return fingerprint({name: tensors.digest for name, tensors in senders.items()})
