"""Write the files that nodes need to enrol: peers.yaml with the mesh key, and secrets.

    peers.yaml    the given file, with the mesh key added
    token-NAME    enrols the node of that name, once; one file per node in peers.yaml
    page-token    for page.token, if all nodes have one owner

For nodes that are to read their own secrets alone, each node's files go into a folder of its own:
NAME/peers.yaml, NAME/token and NAME/page-token.

`fednode introducer invite` calls this.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from fednode.admission.tokens import TOKEN_BYTES
from fednode.errors import ConfigError, StateError
from fednode.identity.keys import node_id
from fednode.settings.peers import load_peers
from fednode.settings.read import Source, named, read_yaml
from fednode.storage.files import put
from fednode_bootstrap.introducer import Roster

TOKEN: Final = "token-"
OWN_TOKEN: Final = "token"
PAGE_TOKEN: Final = "page-token"
ELSEWHERE: Final = "folder with --out"


def invite(
    state: Path, template: Path, folder: Path, relay: bool = False, apart: bool = False
) -> list[str]:
    """Write the files that nodes need to enrol into a folder; return the names of written files.

    state: folder of the introducer; its mesh key is created if there is none. relay: the
    introducer's port is a relay, too, and peers.yaml lists it. apart: each node's files go into a
    folder of its own. While the mesh key stays the same, existing secrets are kept, so the function
    can be called again. Raise ConfigError if peers.yaml names another mesh key or is wrong,
    StateError if the folder cannot be written.
    """
    source = read_yaml(template)
    mesh = str(source.tree.get("mesh", ""))
    book = Roster(state, named(f"{source.at(['mesh'])}: mesh", mesh))
    given = source.tree.get("mesh_key", book.mesh_key)
    if given != book.mesh_key:
        raise ConfigError(
            f"{source.at(['mesh_key'])}: mesh_key is {given}, and the key in {state} is "
            f"{book.mesh_key}: leave the line out, or give the folder of that key."
        )
    text = template.read_text(encoding="utf-8")
    if "mesh_key" not in source.tree:
        text += f"\nmesh_key: {book.mesh_key}\n"
    if relay and "relays" not in source.tree:
        text += f"relays:\n  - {{address: {_introducer(source)!r}, id: {node_id(book.key)}}}\n"
    path = folder / "peers.yaml"
    before = _before(path)
    put(path, text, ELSEWHERE, for_all=True)
    written = [path.name]
    names = [peer.name for peer in load_peers(path).peers]
    for name in names:
        file = folder / name / OWN_TOKEN if apart else folder / f"{TOKEN}{name}"
        # A token is valid only at the introducer that made it, which its mesh key identifies.
        if book.mesh_key not in before or not file.exists():
            _before(file)
            put(file, book.tokens.new(name) + "\n", ELSEWHERE)
            written.append(str(file.relative_to(folder)))
    page = folder / PAGE_TOKEN
    if not page.exists():
        put(page, secrets.token_urlsafe(TOKEN_BYTES) + "\n", ELSEWHERE)
        written.append(PAGE_TOKEN)
    for name in names if apart else ():
        put(folder / name / path.name, text, ELSEWHERE, for_all=True)
        put(folder / name / PAGE_TOKEN, page.read_text(encoding="utf-8"), ELSEWHERE)
    return written


def _before(path: Path) -> str:
    """Make the folder of a file; return what the file holds, "" if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as fault:
        raise StateError(
            f"{path.parent} cannot be used: {fault.strerror}; choose another {ELSEWHERE}."
        ) from fault


def _introducer(source: Source) -> str:
    """Return the introducer's address in a peers.yaml; raise ConfigError if there is none."""
    found = source.tree.get("introducer")
    if not isinstance(found, str):
        raise ConfigError(
            f"{source.at([])} names no introducer, whose port --relay would list: add `introducer`."
        )
    return found
