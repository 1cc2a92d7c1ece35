"""The link to a node's page, with the page token that the node draws."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from fednode.app.state_dir import ELSEWHERE, ROOT
from fednode.errors import AddressError, StateError
from fednode.settings.read import NAME
from fednode.storage.disk import put
from fednode.transports.address import parse

FILE: Final = "page-token"
BYTES: Final = 24
_PAGE: Final = re.compile(r"http://([A-Za-z0-9.:\[\]-]+)/")


def token_in(state: Path) -> str:
    """Return the token in a state directory; "" if this user can read none there."""
    try:
        return (state / FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def draw(state: Path) -> str:
    """Return the token in a state directory; draw one if there is none.

    Raise StateError if the token's file cannot be read or written.
    """
    token = token_in(state)
    if not token and (state / FILE).exists():
        raise StateError(f"{state / FILE} cannot be read, or is empty: remove it.")
    if not token:
        token = secrets.token_urlsafe(BYTES)
        put(state / FILE, f"{token}\n", ELSEWHERE)
    return token


def link(page: str, mesh: str, name: str, state: Path | None) -> str:
    """Return the address of a node's page, with its token if this machine holds the token.

    The token is the fragment, which browsers send to no server.

    page, mesh, name: from the node's status. state: the node's state directory; None for the
    default one. Return "" if `page` is not an address.
    """
    match = _PAGE.fullmatch(page)
    if match is None:
        return ""
    try:
        here = parse(match[1]).loopback
    except AddressError:
        return ""
    named = NAME.fullmatch(mesh) and NAME.fullmatch(name)
    folder = state or (Path.home() / ROOT / mesh / name if named else None)
    token = token_in(folder) if here and folder is not None else ""
    return f"{page}#token={token}" if token else page
