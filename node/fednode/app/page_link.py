"""The link to a node's page, with the page token that the node draws."""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path
from typing import Final

from fednode.app.state_dir import ELSEWHERE, ROOT
from fednode.errors import StateError
from fednode.settings.read import NAME
from fednode.storage.disk import put
from fednode.transports.address import parse

FILE: Final = "page-token"
LINK: Final = "page-link"
BYTES: Final = 24
_PAGE: Final = re.compile(r"http://([A-Za-z0-9.:\[\]-]+)/")


def _text(file: Path) -> str:
    """Return the text of a file; "" if this user can read none there."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def draw(state: Path) -> str:
    """Return the token in a state directory; draw one if there is none.

    Raise StateError if the token's file cannot be read or written.
    """
    token = _text(state / FILE)
    if not token and (state / FILE).exists():
        raise StateError(f"{state / FILE} cannot be read, or is empty: remove it.")
    if not token:
        token = secrets.token_urlsafe(BYTES)
        put(state / FILE, f"{token}\n", ELSEWHERE)
    return token


def keep_link(state: Path, page: str, token: str) -> None:
    """Note in a state directory where its node's page is, with the token on loopback alone.

    The token is the fragment, which browsers send to no server. page: "" for none, as at a start,
    because the link of an earlier start leads to whoever listens there. A full disk keeps no node
    from starting: `link` then shows no token.
    """
    match = _PAGE.fullmatch(page)
    here = match is not None and parse(match[1]).loopback
    with contextlib.suppress(OSError, StateError):
        (state / LINK).unlink(missing_ok=True)
        if here:
            put(state / LINK, f"{page}#token={token}\n", ELSEWHERE)


def link(page: str, mesh: str, name: str, state: Path | None) -> str:
    """Return the address of a node's page, with its token if this machine holds the token.

    Whoever answers may say any address, so the token is shown only for the one that the node of
    the state directory noted there.

    page, mesh, name: from the node's status. state: the node's state directory; None for the
    default one. Return "" if `page` is not an address.
    """
    if not _PAGE.fullmatch(page):
        return ""
    named = NAME.fullmatch(mesh) and NAME.fullmatch(name)
    folder = state or (Path.home() / ROOT / mesh / name if named else None)
    own = "" if folder is None else _text(folder / LINK)
    return own if own.partition("#")[0] == page else page
