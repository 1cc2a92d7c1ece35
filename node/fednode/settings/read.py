"""Read settings strictly: defaults, then YAML, then FEDNODE_SECTION__KEY, then flags.

pydantic checks the settings dataclasses, which live beside the code that they configure. Every
fault is one sentence: the file and line, the value, and what is allowed. An unknown key names the
nearest valid key. All faults of a file are reported together.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

import yaml

from fednode import registry
from fednode.clip.settings import ModelSettings
from fednode.core.policy import PolicyKind
from fednode.core.settings import (
    STRICT,
    GuardSettings,
    Initial,
    LimitSettings,
    MembershipSettings,
    RoundSettings,
    TopologySettings,
)
from fednode.data.base import DataSettings
from fednode.errors import ConfigError
from fednode.lazy import lazy
from fednode.learn.settings import CacheSettings, PrivacySettings, TuningSettings
from fednode.settings import faults, trees
from fednode.settings.output import LogSettings, PageSettings

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = lazy("pydantic")  # takes tenths of a second, and a command's --help needs none

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
NAME_RULE: Final = "use small letters, digits and hyphens, at most 63."
ENVIRONMENT: Final = "FEDNODE_"
NAME_VARIABLE: Final = "FEDNODE_NAME"
FROM_FILE: Final = "_FILE"
POLICY: Final = "zerodfl"
"""The built-in policy: a node runs it whose settings name none."""
RECOMMENDED: Final = "gda"
"""The policy that `fednode init` writes: the most accurate one on a node's own classes and on those
of all nodes (docs/methods.md)."""
Tree = dict[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy with its checked settings.

    config: an instance of `kind.config_type`.
    written: the section `policy` as users write it: the name, and the keys that are set. State
    directories and exported files keep this text.
    """

    kind: PolicyKind
    config: Any
    written: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.kind.name

    @property
    def caution(self) -> str:
        """A warning to the operator about the policy's settings; "" if there is none."""
        return str(getattr(self.config, "caution", ""))

    @property
    def wire_dtype(self) -> Any:
        """The number format of the policy's messages; float32 if it has no such setting."""
        return getattr(self.config, "wire_dtype", "float32")


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """A relay on this node's own port."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    serve: bool = False
    """true: this node is a relay, too, on its own port; list its name and address under `relays` in
    peers.yaml. Only for a node that others can dial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one node (node.yaml)."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    name: str | None = None
    """Which entry of peers.yaml this node is. null: `--name`, else FEDNODE_NAME, else the
    host's name."""
    listen: str | None = None
    """host:port on which this node listens; null: its address in peers.yaml. In containers and
    behind NAT the two differ."""
    advertise: str | None = None
    """host:port at which other nodes reach this node, or `relay` if it takes no connections; null:
    its address in peers.yaml."""
    proxy: str | None = None
    """URL of a proxy, http://HOST:PORT (CONNECT), with USER:PASSWORD@ if need be, through which
    peers and relays are reached; set a password by FEDNODE_PROXY. null: relays are reached through
    the proxy of HTTPS_PROXY and NO_PROXY, if there is one, and peers directly. off: none."""
    relay: RelaySettings = field(default_factory=RelaySettings)
    state_dir: str | None = None
    """Folder of the node's key, its adopted prompts and the history of its rounds; one per node,
    kept between restarts. null: ~/.local/state/fednode/MESH/NAME."""
    seed: int = 1
    """Seed of all random draws: initial prompts, batches, recipients. Equal seeds repeat a run. If
    the nodes of the policy share one state, all nodes need the same seed."""
    log: LogSettings = field(default_factory=LogSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    policy: Annotated[
        Chosen, pydantic.InstanceOf(), pydantic.WithJsonSchema({"type": "object"})
    ] = field(default_factory=lambda: chosen_of({"name": POLICY}))
    """How nodes exchange prompts: `name`, and the settings of that policy."""
    tuning: TuningSettings = field(default_factory=TuningSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    topology: TopologySettings = field(default_factory=TopologySettings)
    page: PageSettings = field(default_factory=PageSettings)


@dataclass(frozen=True, slots=True)
class Source:
    """Settings as written: a tree, where it comes from, and where each of its keys stands."""

    where: str
    tree: Tree
    places: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def at(self, place: Sequence[str]) -> str:
        """Return where a key stands: a line of a file, a flag or a variable.

        A section that only a flag or a variable names stands where the first of its keys stands.
        """
        for end in range(len(place), 0, -1):
            if tuple(place[:end]) in self.places:
                return self.places[tuple(place[:end])]
        inside = (where for at, where in self.places.items() if at[: len(place)] == tuple(place))
        return next(inside, self.where) if place else self.where


def named(option: str, word: str) -> str:
    """Return the name of a mesh or node in an option; raise ConfigError if it is not valid."""
    if not NAME.fullmatch(word):
        raise ConfigError(f"{option} is {word!r}; {NAME_RULE}")
    return word


def load_settings(
    path: Path | None, environment: Mapping[str, str], flags: Sequence[str] = ()
) -> Settings:
    """Return the settings of a node; raise ConfigError with all faults in one text."""
    source = Source("settings", {}) if path is None else read_yaml(path)
    return settings_in(source, environment, flags)


def settings_in(
    source: Source, environment: Mapping[str, str], flags: Sequence[str] = ()
) -> Settings:
    """Return the checked settings of a source, of variables and of flags; raise ConfigError."""
    return settings_of(written(source, environment, flags))


def written(source: Source, environment: Mapping[str, str], flags: Sequence[str] = ()) -> Source:
    """Return a source with variables and flags in it; raise ConfigError if one is no YAML.

    The tree of the source given is changed, too.
    """
    places = dict(source.places)
    for key in sorted(environment):
        if key.startswith(ENVIRONMENT) and key != NAME_VARIABLE:
            held, name = _variable(key, environment[key])
            place = name.lower().split("__")
            trees.put(source.tree, place, held, key)
            places[tuple(place)] = key
    put_flags(source.tree, places, flags)
    return Source(source.where, source.tree, places)


def settings_of(source: Source) -> Settings:
    """Return the checked settings in a tree, the policy's settings included; raise ConfigError."""
    tree = faults.filled(Settings, source.tree)
    policy, policy_faults = tree.get("policy", {}), list[str]()
    if isinstance(policy, dict):
        policy = {"name": POLICY, **policy}
        _put_defaults(tree, str(policy["name"]))
        tree["policy"], policy_faults = _chosen(policy, source)
        if tree["policy"] is None:  # its faults are told below, beside those of the other sections
            del tree["policy"]
    settings, said = _check(Settings, tree, source)
    if said or policy_faults:
        raise ConfigError("\n".join([*said, *policy_faults]))
    if settings.tuning.start == "own" and settings.policy.kind.shared_state:
        raise ConfigError(
            f"{source.at(('tuning', 'start'))}: tuning.start is 'own', and all nodes of policy "
            f"{settings.policy.name} must begin from the same prompts: set it to common or null."
        )
    made: Settings = settings
    rounds, defaults = made.rounds, getattr(made.policy.kind, "rounds", {})
    trains = made.tuning.kind == "torch" and defaults.get("max") != 0
    if trains and not rounds.max and not rounds.min_interval_s:
        raise ConfigError(
            f"{source.at(('rounds', 'max'))}: rounds.max is 0 and rounds.min_interval_s is 0, so "
            f"policy {made.policy.name} would train without a pause and without an end: set "
            "rounds.max to a number of rounds, such as 100, or rounds.min_interval_s to the "
            "least seconds from one round to the next, such as 60."
        )
    return made


def checked(kind: type[Kind], source: Source) -> Kind:
    """Return a settings dataclass made from a tree; raise ConfigError with all faults."""
    settings, said = _check(kind, source.tree, source)
    if said:
        raise ConfigError("\n".join(said))
    made: Kind = settings
    return made


def stored_settings(source: Source, advice: str, flags: Sequence[str] = ()) -> Settings:
    """Return the settings in a file that fednode wrote, and of flags.

    Raise ConfigError; of a key of the file that this version does not know, with advice.
    """
    try:
        return settings_in(source, {}, flags)
    except ConfigError as fault:
        unknown_key = rf"(?m)^({re.escape(source.where)}\b.*: unknown key [^;]*); .*$"
        said = rf"\1: another version of fednode wrote it; {advice}"
        raise ConfigError(re.sub(unknown_key, said, str(fault))) from None


def put_flags(tree: Tree, places: dict[tuple[str, ...], str], flags: Sequence[str]) -> None:
    """Put section.key=value flags into a tree, and note where they come from."""
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(f"--set {flag} has no '=': write section.key=value.")
        place, where = tuple(name.split(".")), f"--set {flag}"
        trees.put(tree, place, _value(value, where), where)
        places[place] = where


def _put_defaults(tree: Tree, policy: str) -> None:
    """Put the policy's defaults for `tuning` and `rounds` under the values that are set there."""
    for section in ("tuning", "rounds") if policy in registry.names() else ():
        if isinstance(said := tree.get(section, {}), dict):
            defaults = dict(getattr(registry.policy(policy), section, {}))
            # Words fix the number of tokens: a context length that is set replaces default words.
            if "context_length" in said:
                defaults.pop("init_words", None)
            tree[section] = {**defaults, **said}


def tree_of(settings: Settings) -> Tree:
    """Return settings as a tree that `settings_of` reads; the policy's keys are those set."""
    return {**asdict(settings), "policy": dict(settings.policy.written)}


def chosen_of(policy: Mapping[str, Any]) -> Chosen:
    """Return the policy that a section `policy` chooses; raise ConfigError with all its faults."""
    chosen, said = _chosen(policy, Source("settings", {}))
    if chosen is None:
        raise ConfigError("\n".join(said))
    return chosen


def _chosen(policy: Mapping[str, Any], source: Source) -> tuple[Chosen | None, list[str]]:
    """Return the policy that a section chooses, or None, and a list of all the section's faults."""
    name = str(policy["name"])
    try:
        kind = registry.policy(name)
    except ConfigError as fault:
        return None, [f"{source.at(('policy', 'name'))}: {fault}"]
    known = ("name", *faults.keys_of(kind.config_type))
    others = [key for key in policy if key not in known and _is_known(key)]
    inside = {key: setting for key, setting in policy.items() if key not in ("name", *others)}
    config, wrong = _check(kind.config_type, inside, source, ("policy",))
    wrong += [
        f"{source.at(('policy', key))}: 'policy.{key}' is of another policy than {name}; remove it."
        for key in others
        if policy[key] is not None  # else it sets nothing, such as `merge` in init's file
    ]
    return (None if wrong else Chosen(kind, config, policy)), wrong


def _is_known(key: str) -> bool:
    """Tell whether a policy has a key. A class of another package that cannot load has none."""
    for name in registry.names():
        with contextlib.suppress(ConfigError):
            if key in faults.keys_of(registry.policy(name).config_type):
                return True
    return False


def start_of(settings: Settings) -> Initial:
    """Return where a node's initial prompts come from: `tuning.start`, or the policy's default.

    If the nodes of a policy share one state, or start from words, all begin from the same prompts.
    Nodes of other policies (ZeroDFL, local) draw their own, as ZeroDFL's clients do.
    """
    tuning = settings.tuning
    if tuning.start is not None:
        return tuning.start
    alike = tuning.init_words is not None or settings.policy.kind.shared_state
    return "common" if alike else "own"


def validation_fault(settings: Settings, share: float) -> str:
    """Return which setting needs validation images if the node keeps none; "" if all is well.

    share: data.validation. Without validation images the policy would merge
    what it was told not to merge, or nothing, and the guard would be off.
    """
    asks = getattr(settings.policy.config, "judged_by", "") or settings.guard.judged_by
    if not asks or share > 0.0:
        return ""
    return f"{asks} judges by validation images, and data.validation is 0; keep a share, say 0.2."


def read_yaml(path: Path) -> Source:
    """Return a YAML file's mapping; raise ConfigError for a bad file or a repeated key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; `fednode init` writes one.") from None
    except OSError as fault:
        raise ConfigError(f"{path} cannot be read: {fault.strerror}.") from None
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}, line {line}, is not UTF-8 text: write the line anew, or restore the file."
        ) from None
    places: dict[tuple[str, ...], str] = {}
    try:
        node, tree = trees.read(text)
        trees.survey(node, path, (), places)
    except yaml.YAMLError as fault:
        raise ConfigError(f"{path} is not valid YAML: {trees.why(fault)}.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no settings: it must be a mapping of keys to values.")
    return Source(str(path), tree, places)


def _variable(key: str, text: str) -> tuple[Any, str]:
    """Return a variable's value and place; FEDNODE_X_FILE names a file with X, a secret."""
    name = key.removeprefix(ENVIRONMENT)
    if not name.endswith(FROM_FILE):
        return _value(text, key), name
    try:
        held = Path(text).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{key} is {text!r}, which cannot be read: {fault}.") from None
    return held, name.removesuffix(FROM_FILE)


def _value(text: str, source: str) -> Any:
    try:
        return trees.read(text)[1]
    except yaml.YAMLError as fault:
        raise ConfigError(f"{source}: {text!r} is not valid YAML: {trees.why(fault)}.") from None


@cache
def _checker(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return what checks a settings class; making it takes pydantic tens of milliseconds."""
    return pydantic.TypeAdapter(kind)


def _check(
    kind: Any, tree: Any, source: Source, inside: faults.Place = ()
) -> tuple[Any, list[str]]:
    """Return a settings dataclass made from a tree, or None, and a list of all its faults.

    A fault hides others of its section, so what is wrong is taken out of the tree, and the rest is
    checked again until nothing more is found.
    """
    said: dict[str, None] = {}
    tree, dropped = faults.filled(kind, tree), set[faults.Place]()
    while True:
        wrong = list(faults.switches(kind, tree, inside))
        made = None
        if not wrong:
            try:
                made = _checker(kind).validate_python(tree)
            except pydantic.ValidationError as fault:
                wrong = [faults.sentence(kind, tree, error, inside) for error in fault.errors()]
        gone = [".".join((*inside, *place)) for place in dropped]
        for place, text in wrong:
            if not any(key in text for key in gone):  # else it may be due to what was taken out
                said[f"{source.at((*inside, *place))}: {text}"] = None
        # Of a list with a fault in one of its items the whole list is taken out.
        places = {tuple(takewhile(lambda part: not part.isdigit(), place)) for place, _ in wrong}
        places.discard(())
        if not places - dropped:
            return (None if said else made), list(said)
        dropped |= places
        for place in places:
            tree = trees.without(tree, place)
