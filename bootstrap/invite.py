"""What nodes need to enrol by themselves: peers.yaml with the mesh key, and secrets as files.

peers.yaml    the one given, and the mesh key
token-NAME    enrols the node of that name, once; one for each node that peers.yaml lists
page-token    for page.token, where all nodes are one owner's
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from bootstrap.introducer import TOKEN_BYTES, Book
from node.config import named, read_yaml
from node.errors import ConfigError, StateError
from node.files import put
from node.peers import load_peers

TOKEN: Final = "token-"
PAGE_TOKEN: Final = "page-token"
ELSEWHERE: Final = "folder with --out"


def invite(state: Path, template: Path, folder: Path) -> list[str]:
    """Write into a folder what nodes need to enrol, and return the names of what was written.

    state: of the introducer; its mesh key is made where there is none. Secrets that are there stay
    as they are while the mesh key does, so that it can be run again. Raise ConfigError for a
    peers.yaml that names another mesh key, and for what is wrong with it otherwise; StateError for
    a folder that cannot be written.
    """
    source = read_yaml(template)
    mesh = str(source.tree.get("mesh", ""))
    book = Book(state, named(f"{source.at(['mesh'])}: mesh", mesh))
    given = source.tree.get("mesh_key", book.mesh_key)
    if given != book.mesh_key:
        raise ConfigError(
            f"{source.at(['mesh_key'])}: mesh_key is {given}, and the key in {state} is "
            f"{book.mesh_key}: leave the line out, or give the folder of that key."
        )
    text = template.read_text(encoding="utf-8")
    if "mesh_key" not in source.tree:
        text += f"\nmesh_key: {book.mesh_key}\n"
    path = folder / "peers.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as fault:
        raise StateError(
            f"{folder} cannot be used: {fault.strerror}; choose another {ELSEWHERE}."
        ) from fault
    put(path, text, ELSEWHERE)
    written = [path.name]
    for peer in load_peers(path).peers:
        file = folder / f"{TOKEN}{peer.name}"
        # A token is good for the introducer that made it, which is known by its key.
        if book.mesh_key not in before or not file.exists():
            put(file, book.token(peer.name) + "\n", ELSEWHERE, secret=True)
            written.append(file.name)
    if not (folder / PAGE_TOKEN).exists():
        page_token = secrets.token_urlsafe(TOKEN_BYTES)
        put(folder / PAGE_TOKEN, page_token + "\n", ELSEWHERE, secret=True)
        written.append(PAGE_TOKEN)
    return written
