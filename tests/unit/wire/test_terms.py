"""Settings documents and their digests on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fednode.core.types import Document, Terms
from fednode.errors import FednodeError
from fednode.wire import codec, terms
from fednode.wire.gen import exchange_pb2
from tests.unit.core.scenes import message

SAID = Terms(force="ab" * 16, accepts="", knows="cd" * 16)
DOCUMENT = Document(3, "ab" * 16, 5, b"signed bytes")


def test_the_digests_come_back_as_they_were() -> None:
    said = codec.decode(codec.encode(message("ping", terms=SAID), "float32"))
    assert said.terms == SAID
    assert codec.decode(codec.encode(message("ping"), "float32")).terms is None
    assert terms.read(exchange_pb2.Envelope(terms=terms.written(Terms()))) == Terms()


def test_of_a_document_only_the_signed_bytes_travel() -> None:
    frame = codec.encode(message("settings", document=DOCUMENT), "float32")
    assert codec.decode(frame).document == Document(proof=DOCUMENT.proof)
    assert codec.decode(codec.encode(message("settings"), "float32")).document is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"phase": "ping", "terms": Terms(knows="ab")}, "is not of 16 bytes"),
        ({"phase": "ping", "document": DOCUMENT}, "a 'ping' message carries a settings document"),
        (
            {"phase": "settings", "document": replace(DOCUMENT, proof=bytes(24_577))},
            "24,577 bytes; at most 24,576 fit",
        ),
    ],
)
def test_what_no_node_writes_is_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(FednodeError, match=words):
        codec.encode(message(**changed), "float32")  # type: ignore[arg-type]
    assert words in terms.fault(message(**changed))  # type: ignore[arg-type]
