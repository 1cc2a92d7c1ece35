"""The text of a link: short, and every other text gets a sentence."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.enrolment.invitation import (
    HEAD,
    Invitation,
    _letters,
    _sealed,
    decode,
    encode,
)
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.transports.address import RelayEntry

LINK = Invitation(
    mesh="clinic",
    mesh_key=keys.written(Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()),
    token=bytes(range(16)),
    site="hospital-b",
    sponsor="hospital-a",
    address="192.168.100.107:57101",
)
RELAY = RelayEntry(name="relay-1", address="relay.example.org:443")
OTHER = RelayEntry(name="relay-2", address="10.0.0.3:7700")
TEXT = encode(LINK)


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ({}, {}),
        ({"address": "[2001:db8::1]:7100", "relays": (RELAY, OTHER)}, {}),
        ({"address": "relay", "relays": (RELAY,)}, {}),
        ({"address": "node.example.org:07100"}, {"address": "node.example.org:7100"}),
    ],
    ids=["as it is", "relays", "no address", "an odd address"],
)
def test_a_link_is_read_back(changed: dict[str, Any], read: dict[str, Any]) -> None:
    link = replace(LINK, **changed)
    assert decode(encode(link)) == replace(link, **read)
    assert len(TEXT) == 176, "it is short"


MARKS = (*"\u200b\u00ad\ufeff\u200e\u200f\u202a\u2060\u00a0\t", "=\n")


@pytest.mark.parametrize(
    "text",
    [
        f"  {TEXT}\n",
        TEXT.lower(),
        f"<{TEXT}>",
        f"> {TEXT[:70]}\r\n> {TEXT[70:]}",
        f'"{TEXT}"',
        *(mark.join((TEXT[:3], TEXT[3:90], TEXT[90:], "")) for mark in MARKS),
        "\u200b".join(TEXT),
        f"\ufeff{TEXT}.",
        f"({TEXT}),",
        f"`{TEXT}`",
        f"```\n{TEXT}\n```",
        f"\u201e{TEXT}\u201c",
        f"*{TEXT}*",
        f"fednode join {TEXT} --data /data/images --set log.level=debug",
        f"$ fednode join '{TEXT[:90]}\\\n{TEXT[90:]}' --data DIR",
        f"For b, to be used once: fednode join {TEXT}. Regards, A",
    ],
)
def test_what_mail_programs_add_does_no_harm(text: str) -> None:
    assert decode(text) == LINK


def resealed(body: bytes) -> str:
    """Return a link of any body, with a right checksum."""
    return HEAD + _letters(_sealed(body))


BODY = keys.read_group(LINK.mesh_key) + LINK.token + b"clinic a b"
NEWER = bytes([9]) + b"\0\x20" + bytes(29)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  \n", "The link is empty"),
        ("https://example.org/join?x=1", "This is no link of fednode"),
        (f"{TEXT[:40]}!{TEXT[41:]}", "The link was cut off, or letters in it are missing"),
        (f"{TEXT[:40]}\u200b{TEXT[41:]}", "The link was cut off, or letters in it are missing"),
        (f"fednode join {TEXT[8:]}", "This is no link of fednode"),
        (f"fednode join {TEXT[:90]} --data DIR", "The link was cut off, or letters in it are"),
        ("\u200b\ufeff", "This is no link of fednode"),
        (TEXT[:100], "The link was cut off, or letters in it are missing"),
        (TEXT[:-1], "The link was cut off, or letters in it are missing"),
        (TEXT[:70] + TEXT[71:], "The link was cut off, or letters in it are missing"),
        (TEXT + "AAAAAAAA", "The link has too many letters, in it or behind its end"),
        (TEXT[:60] + ("A" if TEXT[60] != "A" else "B") + TEXT[61:], "The link has a wrong letter"),
        (HEAD + _letters(NEWER), "is of version 9, and this fednode knows version 3: install"),
        (resealed(BODY[:47]), "cannot be used (it ends too early)"),
        (HEAD + _letters(b"\2" + NEWER[1:]), "is of version 2, and this fednode knows version 3"),
        (resealed(BODY), "cannot be used (it names neither an address nor a relay)"),
        (resealed(BODY + b" nowhere:0"), "cannot be used (it has an address without a"),
        (resealed(BODY + b" 10.0.0"), "cannot be used ("),
        (resealed(BODY + b" 10.0.0.1:1 X"), "cannot be used ("),
        (resealed(BODY[:-1] + b"B 10.0.0.1:1"), "it has a name that is not allowed"),
        (resealed(BODY + b" 10.0.0.1:1" * 2), "it has too many addresses"),
        (resealed(BODY + b" r=10.0.0.1:1" * 3), "it has too many addresses"),
        (resealed(BODY + b" r=10.0.0.1:1 10.0.0.1:1"), "it is written in another way"),
    ],
)
def test_every_other_text_gets_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as fault:
        decode(text)
    assert said in str(fault.value)
    assert TEXT[30:60] not in str(fault.value), "the sentence quotes no secret"


def test_no_mutated_link_is_read_as_another() -> None:
    """A bounded draw of what 100,000 tries showed."""
    chance = random.Random(45)
    for _ in range(300):
        letters = list(TEXT)
        for _ in range(chance.randint(1, 3)):
            letters[chance.randrange(len(letters))] = chance.choice("ABCDEFGHIJ234567:xé ")
        mutated = "".join(letters)
        try:
            assert decode(mutated) == LINK
        except ConfigError:
            continue
        plain = hashlib.sha256(mutated.upper().replace(" ", "").encode()).digest()
        assert plain == hashlib.sha256(TEXT.encode()).digest()
