"""Settings documents: which bytes are read, and the sentence for each other document."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fednode.errors import IdentityError
from fednode.identity import document, keys
from fednode.identity import lease as leases
from fednode.identity.document import (
    DOCUMENT_BYTES_MAX,
    NUMBER_MAX,
    Content,
    digest_of,
    peek,
    read,
    sign,
)
from fednode.identity.lease import DAY_S, SKEW_S, armour
from tests.unit.identity.people import LISTED, MESH, MESH_KEY, NOW, STRANGER, A, B, statement

PUBLIC = MESH_KEY.public_key()
RIGHT = leases.right(MESH_KEY, MESH, "a", LISTED["a"], NOW)
RELAY = ("relay.example:7800", LISTED["b"])
CONTENT = Content(
    mesh=MESH,
    number=2,
    previous="0123456789abcdef" * 2,
    start=7,
    settings={"seed": 1, "policy": {"name": "gda"}, "rounds": {"max": 20}},
    relays=(RELAY,),
    issued=NOW + 60,
)


def nobody(id: str) -> bool:
    return False


def taken(proof: bytes, now: float = NOW + 120) -> Content:
    return read(proof, PUBLIC, nobody, MESH, now)


def forged(fields: dict[str, Any], key: Any = A) -> bytes:
    """Return a document of any fields, with a good signature of a key."""
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return bytes(key.sign(document._PURPOSE + body) + body)


def fields(**changed: Any) -> dict[str, Any]:
    """Return the fields of a good document, with some changed."""
    said: dict[str, Any] = json.loads(sign(A, RIGHT, CONTENT)[64:])
    return {**said, **changed}


def test_a_sponsors_document_is_read_by_whoever_has_the_mesh_key() -> None:
    proof = sign(A, RIGHT, CONTENT)
    found = taken(proof)
    assert found == replace(CONTENT, by=found.by, under=armour(RIGHT)) == peek(proof)
    assert (found.signer, found.relays) == ("a", (RELAY,))
    assert len(digest_of(proof)) == 32
    assert proof == sign(A, RIGHT, CONTENT)  # equal bytes, equal digest


def test_a_document_holds_beyond_the_end_of_its_signers_right() -> None:
    """A right that ended signs nothing more; what it signed before stays in force."""
    assert taken(sign(A, RIGHT, CONTENT), NOW + 4000 * DAY_S).number == 2


def test_a_revoked_signers_document_is_refused() -> None:
    proof = sign(A, RIGHT, CONTENT)
    with pytest.raises(IdentityError, match="'a' signed a settings document, and its key was rev"):
        read(proof, PUBLIC, lambda id: id == LISTED["a"], MESH, NOW + 120)
    assert read(proof, PUBLIC, lambda id: id == LISTED["b"], MESH, NOW + 120)


def under(right: bytes, key: Any = A, **changed: Any) -> bytes:
    own = keys.written(key.public_key())
    return forged(fields(by=own, under=armour(right), **changed), key)


OTHER_MESH = leases.right(MESH_KEY, "other", "a", LISTED["a"], NOW)
LEASE = leases.sign(MESH_KEY, statement("lease", "a", A))
BY_STRANGER = leases.right(STRANGER, MESH, "a", LISTED["a"], NOW)


@pytest.mark.parametrize(
    ("proof", "text"),
    [
        (forged(fields(), B), "not signed by the key that it names"),
        (under(RIGHT, B), "signed by a key that is no sponsor's"),
        (under(LEASE), "signed by a key that is no sponsor's"),
        (under(BY_STRANGER), "a proof is not signed by the key that it should be"),
        (under(OTHER_MESH), "by a sponsor of the mesh 'other', not 'mesh'"),
        (under(OTHER_MESH, mesh="other"), "is for the mesh 'other', not 'mesh'"),
        (under(RIGHT, issued=NOW - 1), "at a time at which it was no sponsor"),
        (under(RIGHT, issued=NOW + 365 * DAY_S + 1), "at a time at which it was no sponsor"),
        (under(RIGHT, issued=NOW + 120 + SKEW_S + 1), "is from the future: check the clocks"),
        (forged(fields(number=0)), "has the number 0"),
        (forged(fields(number=NUMBER_MAX + 1)), "has the number 1000000001"),
        (forged(fields(number=True)), "fields that this version does not know"),
        (forged(fields(start=-1)), "begins at round -1"),
        (forged(fields(start=1.0)), "fields that this version does not know"),
        (forged(fields(issued=-5)), "was signed at second -5"),
        (forged(fields(previous="x" * 32)), "whose digest is none"),
        (forged(fields(previous=None)), "fields that this version does not know"),
        (forged(fields(settings=[])), "something else than sections"),
        (forged(fields(settings={"a": [[[[[[[[1]]]]]]]]})), "something else than sections"),
        (forged(fields(more=1)), "no settings document"),
        (forged({"mesh": MESH}), "no settings document"),
        (forged(fields(relays=None)), "no settings document"),
        (forged(fields(relays=[RELAY] * 5)), "names 5 relays; at most 4"),
        (forged(fields(relays=[["a:1"]])), "without an address and an id"),
        (forged(fields(relays=[["relay", LISTED["b"]]])), "write host:port"),
        (forged(fields(relays=[["x:0", LISTED["b"]]])), "write host:port"),
        (forged(fields(relays=[["x:1", "y"]])), "'y' is no id or key"),
        (forged(fields(relays=[["x", LISTED["b"]]])), "names a wrong relay"),
        (forged(fields(under="%")), "a proof is one line of base64"),
        (forged(fields(by="%")), "is no id or key"),
        (forged(fields(settings={"a": "\ud800"})), "no settings document"),
        (forged(fields(settings={"a": float("nan")})), "no settings document"),
        (forged(fields(settings={"a": "x" * DOCUMENT_BYTES_MAX})), "24,576 is the limit"),
        (b"", "no settings document"),
        (b"\0" * 64 + b"[" * 20_000, "no settings document"),
        (b"\0" * 64 + b"[]", "no settings document"),
    ],
)
def test_other_documents_get_one_sentence(proof: bytes, text: str) -> None:
    with pytest.raises(IdentityError, match=text) as caught:
        taken(proof)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_document_has_one_form() -> None:
    """Spaces, another order of keys, or a key given twice: the signature holds, the form not."""
    said = fields()
    for text in (
        json.dumps(said, sort_keys=True),
        json.dumps(dict(reversed(said.items())), separators=(",", ":")),
        forged(said)[64:].decode().replace('"number":2', '"number":3,"number":2'),
    ):
        body = text.encode()
        with pytest.raises(IdentityError, match="not written as its signer writes it"):
            taken(A.sign(document._PURPOSE + body) + body)


def test_nobody_signs_what_nobody_reads() -> None:
    for changed, text in (
        ({"issued": NOW - 1}, "at which it was no sponsor"),
        ({"number": 0}, "has the number 0"),
        ({"settings": {"a": "x" * DOCUMENT_BYTES_MAX}}, "is the limit"),
        ({"settings": {"a": float("inf")}}, "cannot be written down"),
    ):
        with pytest.raises(IdentityError, match=text):
            sign(A, RIGHT, replace(CONTENT, **changed))
    with pytest.raises(IdentityError, match="no sponsor's"):
        sign(B, RIGHT, CONTENT)


def test_a_signature_of_another_purpose_is_none() -> None:
    body = sign(A, RIGHT, CONTENT)[64:]
    for purpose in (b"", b"fednode statement 1\0", b"fednode mark 1\0"):
        with pytest.raises(IdentityError, match="not signed by the key that it names"):
            taken(A.sign(purpose + body) + body)


@given(st.binary(max_size=400))
def test_any_bytes_are_no_document(data: bytes) -> None:
    with pytest.raises(IdentityError):
        taken(data)
    with pytest.raises(IdentityError):
        taken(bytes(64) + data)


def test_none_of_ten_thousand_changed_documents_is_read() -> None:
    proof, random = sign(A, RIGHT, CONTENT), Random(1)
    for turn in range(10_000):
        changed = bytearray(proof)
        match turn % 4:
            case 0:
                changed[random.randrange(len(proof))] ^= 1 << random.randrange(8)
            case 1:
                del changed[random.randrange(len(proof)) :]
            case 2:
                at = random.randrange(len(proof))
                changed[at:at] = random.randbytes(random.randrange(1, 9))
            case _:
                at, other = random.randrange(len(proof)), random.randrange(len(proof))
                del changed[min(at, other) : max(at, other) + 1]
        with pytest.raises(IdentityError):
            taken(bytes(changed))
