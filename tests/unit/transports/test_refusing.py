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
    assert "hung up right after the TLS handshake and gave no reason" in bare
    assert "revoked" not in bare


@pytest.mark.parametrize(
    ("why", "theirs", "said"),
    [
        ("clock", b"1000000", "its clock is 240 h behind this machine's: set the clock"),
        ("clock", b"3000000", "its clock is 316 h ahead of this machine's: set the clock"),
        ("clock", b"1864000", "it was made while a clock was wrong: start this node again"),
        ("clock", b"", "it was made while a clock was wrong"),
        ("clock", b"nan", "it was made while a clock was wrong"),
        ("clock", b"1e999", "it was made while a clock was wrong"),
        ("clock", b"\xff\n", "it was made while a clock was wrong"),
        ("ended", b"3000000", "why. Its clock is 316 h ahead of this machine's"),
        ("ended", b"1864000", "or ask the founder why"),
    ],
)
def test_a_refusal_by_the_clock_tells_both_clocks_apart(why: Why, theirs: bytes, said: str) -> None:
    text = sentence("a:1", (why, theirs), lambda _: False, clock=lambda: 1_864_000.0)
    assert said in text
    assert "revoked" not in text
