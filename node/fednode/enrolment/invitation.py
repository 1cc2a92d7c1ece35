"""The text of an invitation: everything that a newcomer needs to find a mesh and to be admitted.

    FEDNODE:  base32 of  version 1 byte | size 2 bytes | body | the first 4 bytes of its SHA-256

The body holds the public mesh key (32 bytes), the token (16), the names of the mesh, of the site
that is invited and of the sponsor, up to four addresses of the sponsor, and the names and addresses
of up to two relays; there is an address or a relay. All characters that base32 does not have are
ignored, because mail and chat programs add some.
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
from fednode.transports.address import RelayEntry, parse

HEAD: Final = "FEDNODE:"
VERSION: Final = 2
CHARACTERS_MAX: Final = 220
"""Of a link with one address and no relay."""
ADDRESSES_MAX: Final = 4
RELAYS_MAX: Final = 2
TEXT_MAX: Final = 4096
"""Longest text that is read as a link."""
_KEY: Final = 32
_CHECK: Final = 4
_ASK: Final = "ask for the link again, and copy it whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a link says. site: the one that is invited. sponsor: the node that made the link."""

    mesh: str
    mesh_key: str
    token: bytes
    site: str
    sponsor: str
    addresses: tuple[str, ...]
    relays: tuple[RelayEntry, ...] = ()


def encode(invitation: Invitation) -> str:
    """Return the link of an invitation; raise ConfigError if its names are too long."""
    body = keys.read_group(invitation.mesh_key) + invitation.token
    body += _text(invitation.mesh) + _text(invitation.site) + _text(invitation.sponsor)
    body += bytes([len(invitation.addresses)])
    body += b"".join(_text(address) for address in invitation.addresses)
    body += bytes([len(invitation.relays)])
    body += b"".join(_text(relay.name) + _text(relay.address) for relay in invitation.relays)
    text = HEAD + _letters(_sealed(body))
    over = len(text) - CHARACTERS_MAX
    if over > 0 and len(invitation.addresses) == 1 and not invitation.relays:
        names = f"{invitation.mesh!r}, {invitation.site!r} and {invitation.sponsor!r}"
        raise ConfigError(
            f"The names {names} and the address {invitation.addresses[0]} are "
            f"{-(-over * 5 // 8)} letters too long for a link of {CHARACTERS_MAX} characters: take "
            "a shorter name."
        )
    return text


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
    if data and data[0] > VERSION:
        raise ConfigError(
            f"The link is of version {data[0]}, and this fednode knows version {VERSION}: install "
            "a newer fednode."
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
    if data != _sealed(body, data[0]) or _letters(data) != letters:
        raise ConfigError(f"The link has a wrong letter (its checksum does not fit): {_ASK}.")
    try:
        if data[0] < VERSION:
            raise ValueError(f"it is of version {data[0]}, from before this fednode")
        return _decode(_Reader(body))
    except (ValueError, IdentityError, AddressError) as fault:
        raise ConfigError(f"The link cannot be used ({fault}): ask for another link.") from None


def is_unfinished(text: str) -> bool:
    """Tell whether a text may be the beginning of a link, such as its first line of two."""
    parts, plain = _parts(text), re.sub("[^A-Za-z:]", "", text).upper()
    if len(text) >= TEXT_MAX or (parts is None and not (plain and HEAD.startswith(plain))):
        return False
    data = _bytes("".join(parts or ()))
    return len(data) < 3 or (data[0] == VERSION and len(data) < int.from_bytes(data[1:3], "big"))


def _parts(text: str) -> list[str] | None:
    """Return the letters behind the head of a link, word by word; None without a head.

    Everything else is left out, in the head, too: mail and chat programs add quotes, line breaks
    and marks that nobody sees, and people copy the whole command. The checksum decides.
    """
    plain = re.sub("[^A-Za-z2-7:]+", " ", text[:TEXT_MAX]).upper()
    head = re.search(" ?".join(HEAD), plain)
    return None if head is None else plain[head.end() :].replace(":", " ").split()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise ValueError("it ends too early")
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def count(self, least: int, most: int, what: str) -> int:
        """Return the next byte; raise ValueError if it is beyond the limits."""
        (count,) = self.take(1)
        if not least <= count <= most:
            raise ValueError(f"it has {count} {what}")
        return count

    def text(self) -> str:
        return self.take(self.count(1, 255, "letters of a word")).decode("ascii")

    def name(self) -> str:
        name = self.text()
        if not NAME.fullmatch(name):
            raise ValueError("it has a name that is not allowed")
        return name

    def address(self) -> str:
        endpoint = parse(self.text())
        if endpoint.relayed or endpoint.port == 0:
            raise ValueError("it has an address without a port")
        return str(endpoint)


def _decode(body: _Reader) -> Invitation:
    mesh_key = keys.grouped(body.take(_KEY))
    keys.read_public(mesh_key)
    token = body.take(TOKEN_BYTES)
    mesh, site, sponsor = body.name(), body.name(), body.name()
    addresses = [body.address() for _ in range(body.count(0, ADDRESSES_MAX, "addresses"))]
    count, relays = body.count(0, RELAYS_MAX, "relays"), list[RelayEntry]()
    if not addresses and not count:
        raise ValueError("it names neither an address nor a relay")
    for _ in range(count):
        name = body.name()
        relays.append(RelayEntry(name=name, address=body.address()))
    if body.left:
        raise ValueError("it has more at its end")
    return Invitation(
        mesh=mesh,
        mesh_key=mesh_key,
        token=token,
        site=site,
        sponsor=sponsor,
        addresses=tuple(addresses),
        relays=tuple(relays),
    )


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def _bytes(letters: str) -> bytes:
    """Return the whole bytes in letters of base32; letters that make no byte are left out."""
    whole = len(letters) - (len(letters) * 5 % 8) // 5
    return base64.b32decode(letters[:whole] + "=" * (-whole % 8))


def _sealed(body: bytes, version: int = VERSION) -> bytes:
    """Return a body with version, size and checksum."""
    size = 3 + len(body) + _CHECK
    data = bytes([version]) + size.to_bytes(2, "big") + body
    return data + hashlib.sha256(data).digest()[:_CHECK]


def _text(word: str) -> bytes:
    data = word.encode("ascii")
    return bytes([len(data)]) + data
