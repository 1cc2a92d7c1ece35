"""Links of any names and addresses are read back; no other text is read as one, or crashes."""

from __future__ import annotations

import contextlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fednode.enrolment.invitation import HEAD, Invitation, _letters, _sealed, decode, encode
from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.transports.address import RelayEntry

MESH_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,14}", fullmatch=True)
ADDRESSES = st.builds(
    "{}.{}.{}.{}:{}".format,
    *[st.integers(0, 255)] * 4,
    st.integers(1, 65_535),
)
RELAYS = st.builds(RelayEntry, name=NAMES, address=ADDRESSES)
LINKS = st.builds(
    Invitation,
    mesh=NAMES,
    mesh_key=st.just(keys.written(MESH_KEY.public_key())),
    token=st.binary(min_size=16, max_size=16),
    site=NAMES,
    sponsor=NAMES,
    address=ADDRESSES,
    relays=st.lists(RELAYS, max_size=2).map(tuple),
)


@given(LINKS)
def test_a_link_is_read_back(link: Invitation) -> None:
    assert decode(encode(link)) == link


@given(st.text(max_size=200))
def test_any_text_gets_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError):
        decode(HEAD + text)


@given(st.binary(max_size=200))
def test_any_bytes_with_a_right_checksum_are_a_link_or_get_a_sentence(body: bytes) -> None:
    text = HEAD + _letters(_sealed(body))
    with contextlib.suppress(ConfigError):
        assert encode(decode(text)) == text
