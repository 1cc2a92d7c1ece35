"""Why a caller is refused: the frame, and the sentence that it becomes."""

from __future__ import annotations

import pytest

from fednode.transports.refusing import PROOF_MAX, WHYS, Why, packed, sentence, unpacked


@pytest.mark.parametrize("why", WHYS)
@pytest.mark.parametrize("proof", [b"", b"x", bytes(PROOF_MAX)])
def test_a_reason_comes_out_as_it_went_in(why: Why, proof: bytes) -> None:
    data = packed(why, proof)
    assert unpacked(data) == (why, proof)
    assert data[3] == 7, "GOAWAY"
    assert int.from_bytes(data[:3], "big") == len(data) - 9


def test_other_bytes_are_no_reason() -> None:
    data = packed("revoked", b"proof")
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    for other in (b"", settings, data[:-1], data + b"x", data[1:], packed("revoked", bytes(2000))):
        assert unpacked(other) is None
    unknown = data.replace(b"revoked", b"revolve")
    assert unpacked(unknown) is None


def test_each_reason_is_a_sentence_that_says_what_to_do() -> None:
    assert "mesh revoked this node's key" in sentence("a:1", ("revoked", b"p"), lambda _: True)
    assert "has no proof of it" in sentence("a:1", ("revoked", b"p"), lambda _: False)
    assert "lease has ended" in sentence("a:1", ("ended", b""), lambda _: False)
    assert "does not know this node's key" in sentence("a:1", ("unknown", b""), lambda _: False)
    bare = sentence("a:1", None, lambda _: False)
    assert "hung up right after the TLS handshake" in bare
    assert "Perhaps the key was revoked or its lease ended" in bare
