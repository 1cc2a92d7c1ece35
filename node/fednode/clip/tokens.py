"""Tokenizers of text towers: CLIP's byte pairs, and those of files.

open_clip has two kinds of tokenizers. SimpleTokenizer is CLIP's byte pair encoding. HFTokenizer and
SigLipTokenizer hold a tokenizer of the library transformers, which is read from files. Both kinds
are asked which tokens they put before and behind a text; no table of names decides. Of each kind a
text tower needs:

    begin, end   ids that stand before and behind every text
    pad          id behind shorter texts
    length       ids of a text at most, with begin and end
    size         number of ids in the vocabulary
    identity     everything that the ids of a text depend on; "" for CLIP's byte pairs
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from open_clip.tokenizer import get_clean_fn

from fednode.errors import ModelError

PROBE: Final = "a"
"""A word that every vocabulary has; a tokenizer is asked what it puts around it."""
READ: Final = 77
"""Tokens that open_clip's tokenizers read if their configuration names no number."""


class ClipTokenizer:
    """CLIP's byte pairs; words never share a token, so words behind others have the same ids."""

    pad = 0
    identity = ""

    def __init__(self, theirs: Any) -> None:
        self.begin: tuple[int, ...] = (int(theirs.sot_token_id),)
        self.end: tuple[int, ...] = (int(theirs.eot_token_id),)
        self.length = int(theirs.context_length or READ)
        self.size = int(theirs.vocab_size)
        # The ids of a text, of words behind others, and the text of ids.
        self.encode: Callable[[str], list[int]] = theirs.encode
        self.encode_continuation = self.encode
        self.decode: Callable[[Sequence[int]], str] = theirs.decode


class FileTokenizer:
    """A tokenizer of transformers, as open_clip wraps it; ModelError if its ids do not join."""

    def __init__(self, theirs: Any) -> None:
        inner = theirs.tokenizer
        mode = getattr(theirs, "tokenizer_mode", "")
        if mode:
            raise ModelError(f"its tokenizer works in the mode {mode!r}")
        if inner.padding_side != "right" or inner.pad_token_id is None:
            raise ModelError("its tokenizer does not fill texts up at their end")
        self._inner = inner
        cleaned = getattr(theirs, "clean_fn", None)
        self._clean: Callable[[str], str] = cleaned or get_clean_fn("canonicalize")
        # CLIPA's texts have 0 in place of the separator.
        self._dropped = inner.sep_token_id if getattr(theirs, "strip_sep_token", False) else None
        whole, bare = self._ids(PROBE, True), self._ids(PROBE, False)
        places = (at for at in range(len(whole)) if whole[at : at + len(bare)] == bare)
        at = next(places, None) if bare else None
        if at is None:
            raise ModelError("its tokenizer changes the ids of a text that it puts tokens around")
        self.begin, self.end = tuple(whole[:at]), tuple(whole[at + len(bare) :])
        self.pad = int(inner.pad_token_id)
        self.length = int(theirs.context_length or READ)
        self.size = len(inner)
        self._probe = bare
        self.identity = json.dumps(
            [_vocabulary(inner), cleaned.__name__ if cleaned else "", self._dropped, self.length,
             self.begin, self.end, self.pad],
            sort_keys=True,
        )  # fmt: skip

    def encode(self, text: str) -> list[int]:
        return self._ids(text, False)

    def encode_continuation(self, text: str) -> list[int]:
        """Return the ids of words behind others; some vocabularies have a space in a token."""
        joined = self._ids(f"{PROBE} {text}", False)
        count = len(self._probe)
        return joined[count:] if joined[:count] == self._probe else self._ids(text, False)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._inner.decode(list(ids)))

    def _ids(self, text: str, around: bool) -> list[int]:
        tokenized = self._inner(self._clean(text), add_special_tokens=around, verbose=False)
        return [0 if number == self._dropped else int(number) for number in tokenized.input_ids]


Tokenizer = ClipTokenizer | FileTokenizer


def tokenizer_of(theirs: Any) -> Tokenizer:
    """Return open_clip's tokenizer as one of both; raise ModelError with half a sentence."""
    if all(hasattr(theirs, name) for name in ("encode", "sot_token_id", "eot_token_id")):
        return ClipTokenizer(theirs)
    if hasattr(theirs, "tokenizer"):
        return FileTokenizer(theirs)
    raise ModelError(f"its tokenizer ({type(theirs).__name__}) is of no kind that fednode knows")


def identity_of(theirs: Any) -> str:
    """Return everything that the ids of open_clip's tokenizer depend on; "" for byte pairs."""
    try:
        return tokenizer_of(theirs).identity
    except ModelError:
        return ""


def _vocabulary(inner: Any) -> Any:
    """Return what the ids depend on: the whole of a fast tokenizer, else the table of ids."""
    backend = getattr(inner, "backend_tokenizer", None)
    if backend is None:
        return [type(inner).__name__, sorted(inner.get_vocab().items())]
    described = json.loads(backend.to_str())
    # What the last call asked for belongs to that call.
    return {key: value for key, value in described.items() if key not in {"truncation", "padding"}}
