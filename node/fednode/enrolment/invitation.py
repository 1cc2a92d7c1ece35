"""The text of an invitation: everything that a newcomer needs to find a mesh and to be admitted.

    FEDNODE:  base32 of  version 1 byte | size 2 bytes | body | the first 4 bytes of its SHA-256

The body holds the public mesh key (32 bytes), the token (16), and words in ASCII with a space
between them: the names of the mesh, of the site that is invited and of the sponsor, the sponsor's
address if it takes connections, and up to two relays as name=address; there is an address or a
relay. All characters that base32 does not have are ignored, because mail and chat programs add
some.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from fednode.errors import AddressError, ConfigError, IdentityError
from fednode.identity import keys
from fednode.identity.certificates import TOKEN_BYTES
from fednode.settings.read import NAME
from fednode.transports.address import RELAY, RelayEntry, parse

HEAD: Final = "FEDNODE:"
VERSION: Final = 3
RELAYS_MAX: Final = 2
TEXT_MAX: Final = 4096
"""Longest text that is read as a link."""
_KEY: Final = 32
_CHECK: Final = 4
_ASK: Final = "ask for the link again, and copy it whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a link says. site: the one that is invited. sponsor: the node that made the link.

    address: of the sponsor, or `relay`.
    """

    mesh: str
    mesh_key: str
    token: bytes
    site: str
    sponsor: str
    address: str
    relays: tuple[RelayEntry, ...] = ()


def encode(invitation: Invitation) -> str:
    """Return the link of an invitation."""
    return HEAD + _letters(_sealed(_body(invitation)))


def decode(text: str) -> Invitation:
    """Return the invitation in a text; raise ConfigError with what is wrong with other text."""
    parts = _parts(text)
    if parts is None and not text.strip():
        raise ConfigError("The link is empty: give the text that `fednode invite` printed.")
    if parts is None:
        raise ConfigError(
            f"This is no link of fednode: a link begins with {HEAD} and has some 180 letters and "
            "digits; `fednode invite` prints one."
        )
    data = _bytes("".join(parts))
    if data and data[0] != VERSION:
        older = "here" if data[0] > VERSION else f"on the machine that made it, and {_ASK}"
        raise ConfigError(
            f"The link is of version {data[0]}, and this fednode knows version {VERSION}: install "
            f"a newer fednode {older}."
        )
    size, letters = int.from_bytes(data[1:3], "big"), ""
    for part in parts:  # what stands behind the whole link is another word
        if len(letters) < -(-size * 8 // 5):
            letters += part
    data = _bytes(letters)
    if len(data) < 3 or len(data) < size:
        raise ConfigError(f"The link was cut off, or letters in it are missing: {_ASK}.")
    if len(data) > size:
        raise ConfigError(f"The link has too many letters, in it or behind its end: {_ASK}.")
    body = data[3:-_CHECK]
    if data != _sealed(body) or _letters(data) != letters:
        raise ConfigError(f"The link has a wrong letter (its checksum does not fit): {_ASK}.")
    try:
        return _decode(body)
    except (ValueError, IdentityError, AddressError) as fault:
        raise ConfigError(f"The link cannot be used ({fault}): ask for another link.") from None


def _parts(text: str) -> list[str] | None:
    """Return the letters behind the head of a link, word by word; None without a head.

    Everything else is left out, in the head, too: mail and chat programs add quotes, line breaks
    and marks that nobody sees, and people copy the whole command. The checksum decides.
    """
    plain = re.sub("[^A-Za-z2-7:]+", " ", text[:TEXT_MAX]).upper()
    head = re.search(" ?".join(HEAD), plain)
    return None if head is None else plain[head.end() :].replace(":", " ").split()


def _body(invitation: Invitation) -> bytes:
    """Return the bytes of an invitation, with each address in the one form that is read."""
    names = (invitation.mesh, invitation.site, invitation.sponsor)
    addresses = [] if invitation.address == RELAY else [str(parse(invitation.address))]
    relays = (f"{relay.name}={parse(relay.address)}" for relay in invitation.relays)
    words = " ".join((*names, *addresses, *relays))
    return keys.read_group(invitation.mesh_key) + invitation.token + words.encode("ascii")


def _decode(body: bytes) -> Invitation:
    if len(body) < _KEY + TOKEN_BYTES:
        raise ValueError("it ends too early")
    words = body[_KEY + TOKEN_BYTES :].decode("ascii").split(" ")
    if len(words) < 4:
        raise ValueError("it names neither an address nor a relay")
    mesh, site, sponsor, *places = words
    named = [place.partition("=") for place in places if "=" in place]
    addresses = [_address(place) for place in places if "=" not in place]
    invitation = Invitation(
        mesh=mesh,
        mesh_key=keys.grouped(body[:_KEY]),
        token=body[_KEY:][:TOKEN_BYTES],
        site=site,
        sponsor=sponsor,
        address=addresses[0] if addresses else RELAY,
        relays=tuple(RelayEntry(name, _address(address)) for name, _, address in named),
    )
    keys.read_public(invitation.mesh_key)
    if not all(map(NAME.fullmatch, (mesh, site, sponsor, *(name for name, _, _ in named)))):
        raise ValueError("it has a name that is not allowed")
    if len(addresses) > 1 or len(named) > RELAYS_MAX:
        raise ValueError("it has too many addresses")
    if _body(invitation) != body:
        raise ValueError("it is written in another way")
    return invitation


def _address(text: str) -> str:
    endpoint = parse(text)
    if endpoint.relayed or endpoint.port == 0:
        raise ValueError("it has an address without a port")
    return str(endpoint)


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def _bytes(letters: str) -> bytes:
    """Return the whole bytes in letters of base32; letters that make no byte are left out."""
    whole = len(letters) - (len(letters) * 5 % 8) // 5
    return base64.b32decode(letters[:whole] + "=" * (-whole % 8))


def _sealed(body: bytes) -> bytes:
    """Return a body with version, size and checksum."""
    size = 3 + len(body) + _CHECK
    data = bytes([VERSION]) + size.to_bytes(2, "big") + body
    return data + hashlib.sha256(data).digest()[:_CHECK]
