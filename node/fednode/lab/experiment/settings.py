"""What an experiment is: data, protocol, methods, seeds; read as strictly as node.yaml.

docs/experiments.md explains every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from fednode.clip.settings import ModelSettings
from fednode.core.settings import STRICT, RoundSettings, bounded
from fednode.lab.simulate.byzantine import FLIPPED
from fednode.lab.simulate.byzantine import KINDS as LIES
from fednode.learn.settings import CacheSettings

ZERO_SHOT: Final = "zero-shot"
"""The method that learns nothing: the hand-written prompt."""
Kind = Literal["leave-one-domain-out", "in-domain", "base-to-new"]


@dataclass(frozen=True, slots=True)
class ProtocolSettings:
    """Who has which images, and what is tested.

    kind: "leave-one-domain-out" is the protocol of DiPrompT and PLAN, "in-domain" that of Fed-DPT,
    "base-to-new" that of ZeroDFL and FedTPG.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    kind: Kind = "leave-one-domain-out"
    clients: int | None = None
    classes_per_client: int = 20
    alpha: float | None = None
    targets: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            bounded("protocol.clients", self.clients, 1)
        bounded("protocol.classes_per_client", self.classes_per_client, 1)
        if self.alpha is not None:
            bounded("protocol.alpha", self.alpha, 1e-3, 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """The images: root/<domain>/<class>/<image> for domains, root/<class>/<image> for base-to-new.

    domains, classes: folders; None for all. test_images: of one class; 0 for all.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    path: str
    shots: int = 16
    test: float = 0.2
    validation: float = 0.0
    domains: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    test_images: int = 0
    templates: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounded("data.shots", self.shots, 0)
        bounded("data.test", self.test, 0, 0.99)
        bounded("data.validation", self.validation, 0, 0.99)
        bounded("data.test_images", self.test_images, 0)
        for key, names in (("data.domains", self.domains), ("data.classes", self.classes)):
            if names is not None:
                _named(key, names)
        for name, text in self.templates.items():
            if text.count("{}") != 1:
                raise ValueError(
                    f"data.templates has {text!r} for {name!r}; a template must have one {{}}, for "
                    "the class name."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSettings:
    """One row of the table. policy, tuning, privacy, guard: on top of the experiment's own.

    paper: what its paper reports, in percent. liars: nodes that send what `lie` says
    (node/fednode/lab/simulate/byzantine.py, or "label-flip").
    """

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    label: str
    policy: dict[str, Any] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    paper: dict[str, float] = field(default_factory=dict)
    liars: int = 0
    lie: str = "sign-flip"
    privacy: dict[str, Any] = field(default_factory=dict)
    guard: dict[str, Any] = field(default_factory=dict)
    mean_at_end: bool = False

    def __post_init__(self) -> None:
        bounded("liars", self.liars, 0)
        if self.mean_at_end and self.policy.get("name") != "local":
            raise ValueError(
                f"mean_at_end is set with policy {self.policy.get('name')!r}; it averages what "
                "nodes tuned alone, so set policy: local, or leave it out."
            )
        if self.lie != FLIPPED and self.lie not in LIES:
            raise ValueError(f"lie is {self.lie!r}; there are {', '.join([*LIES, FLIPPED])}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One file. curve_every: rounds; 0 for the end alone. vary: one key, and its values."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    title: str
    data: DataPart
    methods: tuple[MethodSettings, ...]
    protocol: ProtocolSettings = field(default_factory=ProtocolSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    tuning: dict[str, Any] = field(default_factory=dict)
    rounds: int = 30
    seeds: tuple[int, ...] = (1, 2, 3)
    curve_every: int = 0
    vary: dict[str, list[Any]] = field(default_factory=dict)
    smoke: dict[str, Any] = field(default_factory=dict)
    cache: CacheSettings = field(default_factory=CacheSettings)
    against: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.vary) > 1:
            raise ValueError(
                f"vary names {len(self.vary)} keys ({', '.join(self.vary)}); name one key. Values "
                "of a second key can be methods, or stand in another file."
            )
        for key, values in self.vary.items():
            if not values or any(values.count(value) > 1 for value in values):
                raise ValueError(f"vary.{key} is {values}; give one value or more, none twice.")
        bounded("rounds", self.rounds, 1)
        bounded("curve_every", self.curve_every, 0)
        labels = [method.label for method in self.methods]
        _named("methods", labels)
        _named("seeds", list(map(str, self.seeds)))
        strange = sorted(set(self.against or ()) - set(labels))
        if strange:
            raise ValueError(
                f"against names {strange[0]!r}, which is no method; there are {', '.join(labels)}."
            )
        if self.data.domains is not None and self.protocol.kind == "base-to-new":
            raise ValueError(
                "data.domains is set, and protocol.kind base-to-new has no domains; name folders "
                "of data sets in protocol.datasets."
            )
        sets = self.protocol.datasets or ()
        unknown = sorted(set(self.data.templates) - set(sets))
        if unknown and not self.vary:  # the data sets may be what varies
            raise ValueError(
                f"data.templates names {unknown[0]!r}, which is none of protocol.datasets "
                f"({', '.join(sets) or 'none'}); for one data set, set tuning.template."
            )

    def template_of(self, method: MethodSettings, dataset: str, default: str) -> str:
        """Return the hand-written text of a method on a data set; default: tuning.template."""
        if "template" in method.tuning:
            return default
        return self.data.templates.get(dataset, default)

    def rounds_of(self, method: MethodSettings) -> RoundSettings:
        """Return the rounds of a method in the simulator, where all nodes start together."""
        return RoundSettings(max=method.rounds or self.rounds, deadline_s=600.0)


def _named(key: str, names: Sequence[str]) -> None:
    """Raise ValueError if a list is empty or names something twice."""
    if not names:
        raise ValueError(f"{key} is empty; give one at least.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{key} names {twice[0]!r} twice.")
