"""Tokenizers behind the protocol: what stands around a text, words behind others, identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fednode.clip import tokens
from fednode.errors import ModelError
from tests.unit.clip import twins


def test_what_stands_around_a_text_is_asked_of_the_tokenizer(twin: Any) -> None:
    _, _, theirs, _ = twin
    ours = tokens.tokenizer_of(theirs)
    for text in ("a photo of a cat.", "golden retriever", ""):
        (row,) = theirs([text], context_length=twins.READ).tolist()
        wanted = [*ours.begin, *ours.encode(text), *ours.end]
        assert row == wanted + [ours.pad] * (len(row) - len(wanted))


def test_words_behind_others_have_the_ids_that_they_have_in_the_text(twin: Any) -> None:
    ours = tokens.tokenizer_of(twin[2])
    whole = ours.encode("a photo of a golden retriever.")
    assert ours.encode("a photo of") + ours.encode_continuation("a golden retriever.") == whole
    assert ours.encode_continuation("") == []
    assert ours.decode(ours.encode("golden")).replace(" ", "") == "golden"


def test_a_fingerprint_covers_a_tokenizer_of_the_models_own(twin: Any, tmp_path: Path) -> None:
    kind, _, tokenizer, _ = twin
    own = hasattr(tokenizer, "tokenizer")
    assert bool(tokens.identity_of(tokenizer)) == own
    if own:
        again = twins.TEXT[kind][0](tmp_path)
        assert tokens.identity_of(again) == tokens.identity_of(tokenizer)
        again.tokenizer.add_tokens(["gerenuk"])
        assert tokens.identity_of(again) != tokens.identity_of(tokenizer)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"padding_side": "left"}, "does not fill texts up at their end"),
        ({"pad_token": None}, "does not fill texts up at their end"),
    ],
)
def test_tokenizers_that_put_texts_together_in_other_ways_are_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    theirs = twins.xlm(tmp_path)
    for name, value in change.items():
        setattr(theirs.tokenizer, name, value)
    with pytest.raises(ModelError, match=reason):
        tokens.tokenizer_of(theirs)
    assert tokens.identity_of(theirs) == ""


def test_a_mode_of_its_own_is_refused(tmp_path: Path) -> None:
    theirs = twins.xlm(tmp_path)
    theirs.tokenizer_mode = "clips"
    with pytest.raises(ModelError, match="works in the mode 'clips'"):
        tokens.tokenizer_of(theirs)
