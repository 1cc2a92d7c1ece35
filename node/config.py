"""Read settings: defaults, then YAML, then FEDNODE_SECTION__KEY, then flags; strictly.

pydantic checks the settings dataclasses that live beside the code they set. Every fault is one
sentence with the place, the value and what is allowed; an unknown key names the nearest valid one.
"""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from node.clip.settings import ModelSettings
from node.core.settings import STRICT, GuardSettings, MembershipSettings, RoundSettings
from node.data.base import DataSettings
from node.errors import ConfigError
from node.learn.settings import TuningSettings
from node.transports.address import parse

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ENVIRONMENT: Final = "FEDNODE_"
NAME_VARIABLE: Final = "FEDNODE_NAME"
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one node; `policy` is checked by the policy's own dataclass."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str | None = None
    listen: str | None = None
    advertise: str | None = None
    state_dir: str | None = None
    seed: int = 1
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    policy: dict[str, Any] = field(default_factory=lambda: {"name": "zerodfl"})
    tuning: TuningSettings = field(default_factory=TuningSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """One line of peers.yaml."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str
    address: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Peers:
    """peers.yaml: the mesh's name and who is in it."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    mesh: str
    peers: tuple[PeerEntry, ...]
    insecure: bool = False

    def entry(self, name: str) -> PeerEntry:
        """Return the entry of a name; raise ConfigError where there is none."""
        for peer in self.peers:
            if peer.name == name:
                return peer
        known = [peer.name for peer in self.peers]
        raise ConfigError(
            f"No peer is called {name!r} in peers.yaml; there are {', '.join(known)}: give one of "
            f"them with --name or {NAME_VARIABLE}."
        )


def load_settings(
    path: Path | None, environment: Mapping[str, str], flags: Sequence[str] = ()
) -> Settings:
    """Return the settings of a node; raise ConfigError with every fault in one text."""
    tree: Tree = {} if path is None else read_yaml(path)
    for key in sorted(environment):
        if key.startswith(ENVIRONMENT) and key != NAME_VARIABLE:
            place = key.removeprefix(ENVIRONMENT).lower().split("__")
            _put(tree, place, yaml.safe_load(environment[key]), key)
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(f"--set {flag!r} has no '=': write section.key=value.")
        _put(tree, name.split("."), yaml.safe_load(value), f"--set {flag}")
    where = str(path) if path else "settings"
    settings: Settings = check(Settings, tree, where)
    if "name" not in settings.policy:
        raise ConfigError(f"{where}: policy has no name; write policy: {{name: zerodfl}}.")
    return settings


def load_peers(path: Path) -> Peers:
    """Return peers.yaml; raise ConfigError for duplicate names, bad addresses and the like."""
    peers: Peers = check(Peers, read_yaml(path), str(path))
    seen: dict[str, str] = {}
    for peer in peers.peers:
        if not NAME.fullmatch(peer.name):
            raise ConfigError(
                f"{path}: the name {peer.name!r} is not allowed; use small letters, digits and "
                "hyphens, at most 63."
            )
        parse(peer.address)
        for what in (peer.name, peer.address):
            if what in seen:
                raise ConfigError(
                    f"{path}: {what!r} is given to both {seen[what]!r} and {peer.name!r}; names "
                    "and addresses must differ."
                )
            seen[what] = peer.name
    return peers


def which_am_i(peers: Peers, name: str | None, environment: Mapping[str, str]) -> str:
    """Return the node's own name: --name, then FEDNODE_NAME, then the host's name."""
    chosen = name or environment.get(NAME_VARIABLE) or socket.gethostname()
    return peers.entry(chosen).name


def check(kind: Any, tree: Any, where: str) -> Any:
    """Return a settings dataclass made from a tree; raise ConfigError naming every fault."""
    try:
        return TypeAdapter(kind).validate_python(tree)
    except ValidationError as fault:
        raise ConfigError(
            "\n".join(_sentence(kind, one, where) for one in fault.errors())
        ) from None


def read_yaml(path: Path) -> Tree:
    """Return a YAML file's mapping; raise ConfigError for a missing, broken or repeated key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; `fednode init` writes one.") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{path} cannot be read: {fault}.") from None
    try:
        _refuse_repeated(yaml.compose(text, yaml.SafeLoader), path)
        tree = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        shown = " ".join(str(fault).split())
        raise ConfigError(f"{path} is not valid YAML: {shown}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no settings: it must be a mapping of keys to values.")
    return tree


def _refuse_repeated(found: yaml.Node | None, path: Path) -> None:
    if isinstance(found, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in found.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ConfigError(f"{path}, line {line}: the key {key.value!r} is given twice.")
            seen.add(key.value)
            _refuse_repeated(value, path)
    elif isinstance(found, yaml.SequenceNode):
        for value in found.value:
            _refuse_repeated(value, path)


def _put(tree: Tree, place: Sequence[str], value: Any, source: str) -> None:
    for part in place[:-1]:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: {part!r} is not a section.")
        tree = inner
    tree[place[-1]] = value


def _sentence(kind: Any, fault: Any, where: str) -> str:
    place = [str(part) for part in fault["loc"]]
    key = ".".join(place)
    if fault["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        near = difflib.get_close_matches(place[-1], _keys(kind, place[:-1]), 1)
        hint = f"did you mean {near[0]!r}?" if near else "remove it."
        return f"{where}: unknown key {key!r}; {hint}"
    if fault["type"] in {"missing", "missing_argument"}:
        return f"{where}: {key!r} is missing."
    message = fault["msg"].removeprefix("Value error, ")
    shown = message[0].lower() + message[1:]
    return f"{where}: {key or 'settings'} is {fault.get('input')!r}; {shown}."


def _keys(kind: Any, place: Sequence[str]) -> list[str]:
    """Return the valid keys at a place, for the nearest match."""
    for part in place:
        hints = get_type_hints(kind) if is_dataclass(kind) else {}
        kind = hints.get(part, PeerEntry if part == "peers" or part.isdigit() else None)
    return [one.name for one in fields(kind)] if is_dataclass(kind) else []
