"""Five words of a key, which two people compare by phone.

The words come from a slow hash: to find another key with the same five words takes 2^55 hashes of
a tenth of a second each. The list is BIP-39's, whose words differ in their first four letters.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from mnemonic import Mnemonic

from fednode.identity.keys import read_group

COUNT: Final = 5
_BITS: Final = 11  # of one of 2,048 words
_SALT: Final = b"fednode words 1"
_MEMORY: Final = 1 << 26


@cache
def words_of(key: str) -> str:
    """Return the words of an id, or of a public key as peers.yaml gives it."""
    raw_key = read_group(key)
    digest = hashlib.scrypt(raw_key, salt=_SALT, n=1 << 15, r=8, p=1, maxmem=_MEMORY, dklen=8)
    number = int.from_bytes(digest, "big") >> (64 - COUNT * _BITS)
    picked = [number >> _BITS * place & (1 << _BITS) - 1 for place in reversed(range(COUNT))]
    known = Mnemonic("english").wordlist
    return " ".join(known[place] for place in picked)


def same(said: str, words: str) -> bool:
    """Tell whether a person means these words, in any case and with any white space or hyphens."""
    return said.lower().replace("-", " ").split() == words.split()
