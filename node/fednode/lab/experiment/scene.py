"""Turn an experiment's protocol into clients with images, and into tests.

Clients of one domain share its images out by class, evenly or by Dirichlet shares; base-to-new
clients get consecutive blocks of the base classes, the remainder to the last.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unicodedata import normalize

from fednode.data import splits
from fednode.data.base import BUILTIN, DataSettings, Image, NodeData, PartitionSettings, Split
from fednode.data.folder import entries
from fednode.data.images import Cache
from fednode.data.load import load
from fednode.data.official import LISTS
from fednode.errors import ConfigError, DataError
from fednode.lab.experiment.settings import Experiment

EVEN: Final = 1e6
"""A Dirichlet parameter at which shares are equal to within a few images."""


@dataclass(frozen=True, slots=True)
class Client:
    """One node: its name, its domain or data set, and its training images."""

    name: str
    domain: str
    data: NodeData


@dataclass(frozen=True, slots=True)
class ImageTest:
    """One test, a column of the table: which images each client is tested on."""

    name: str
    images: Mapping[str, Split]


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a run is given. domains: that clients have, in order."""

    clients: tuple[Client, ...]
    tests: tuple[ImageTest, ...]
    domains: tuple[str, ...]


def targets(experiment: Experiment) -> tuple[str, ...]:
    """Return the domains to leave out in turn, or ("",) where none is."""
    protocol = experiment.protocol
    if protocol.kind != "leave-one-domain-out":
        return ("",)
    known = tuple(_folders(experiment))
    for name in protocol.targets or ():
        if name not in known:
            raise ConfigError(
                f"protocol.targets names {name!r}, which is no domain of this experiment in "
                f"{experiment.data.path}; there are {', '.join(known)}."
            )
    return protocol.targets or known


def columns(experiment: Experiment) -> tuple[str, ...]:
    """Return the tests that the table shows, in order, as each run has one of them or all."""
    kind = experiment.protocol.kind
    if kind == "leave-one-domain-out":
        return targets(experiment)
    if kind == "in-domain":
        return tuple(_folders(experiment))
    parts = experiment.protocol.datasets
    names = ("base", "new", "own")
    return names if not parts else tuple(f"{part}/{name}" for part in parts for name in names)


def scene(experiment: Experiment, seed: int, target: str, cache: Cache | None = None) -> Scene:
    """Return the clients and tests of a run; raise DataError or ConfigError on bad data.

    cache: keeps the results of examining image files.
    """
    if experiment.protocol.kind == "base-to-new":
        found = _base_to_new(experiment, seed, cache)
    else:
        found = _domains(experiment, seed, target, cache)
    for client in found.clients:
        if all(name.isdigit() for name in client.data.train.classes):
            raise DataError(
                f"The classes in '{experiment.data.path}' are numbers, which say nothing to the "
                "model: rename their folders. VLCS as published takes `python -m tools.splits vlcs "
                f"{experiment.data.path}`, which names its classes."
            )
    return found


def spoken_of(folder: str) -> str:
    """Return a folder's name as policies name domains: "Real World" is real_world."""
    return re.sub(r"[^a-z0-9_-]+", "_", folder.lower()).lstrip("_-") or "domain"


def domains(root: Path) -> dict[str, Path]:
    """Return the domain folders of root/<domain>/<class>/<image>, by name, sorted.

    A folder `splits` that holds files alone, such as DomainNet's lists, is no domain.
    """
    folders, _ = entries(root, "folder of domains")
    folders = [path for path in folders if path.name != LISTS or entries(path, "folder")[0]]
    if not folders:
        raise DataError(f"The folder of domains '{root}' holds no folder.")
    return {normalize("NFC", path.name): path for path in folders}


def _folders(experiment: Experiment) -> dict[str, Path]:
    path = experiment.data.path
    if path == BUILTIN:
        raise ConfigError(
            f"data.path is {BUILTIN}, which has no domains; give a folder with one folder for each "
            "domain, or protocol.kind: base-to-new."
        )
    folders = domains(Path(path).expanduser())
    wanted = experiment.data.domains
    for name in wanted or ():
        if name not in folders:
            raise ConfigError(
                f"data.domains names {name!r}, which is no folder of images in {path}; there are "
                f"{', '.join(folders)}."
            )
    chosen = {name: folder for name, folder in folders.items() if wanted is None or name in wanted}
    if len(chosen) < 2 and experiment.protocol.kind == "leave-one-domain-out":
        raise ConfigError(
            f"protocol.kind is leave-one-domain-out, and {', '.join(chosen)} is the only domain to "
            f"use in {path}; use at least 2 domains."
        )
    return chosen


def _settings(experiment: Experiment, path: str, seed: int, test: float) -> DataSettings:
    data = experiment.data
    return DataSettings(
        path=path,
        classes=data.classes,
        shots=data.shots,
        validation=data.validation,
        test=test,
        seed=seed,
    )


def _domains(experiment: Experiment, seed: int, target: str, cache: Cache | None) -> Scene:
    folders, protocol = _folders(experiment), experiment.protocol
    sources = [name for name in folders if name != target]
    count = protocol.clients or len(sources)
    if count < len(sources):
        raise ConfigError(
            f"protocol.clients is {count} with {len(sources)} domains to learn from "
            f"({', '.join(sources)}); give each at least one client."
        )
    share = {name: len(range(at, count, len(sources))) for at, name in enumerate(sources)}
    test = 0.0 if target else experiment.data.test
    clients: list[Client] = []
    for at in range(count):
        domain = sources[at % len(sources)]
        settings = _settings(experiment, str(folders[domain]), seed, test)
        if share[domain] > 1:
            part = PartitionSettings(
                "dirichlet", at // len(sources), share[domain], protocol.alpha or EVEN
            )
            settings = replace(settings, partition=part)
        clients.append(_client(at, spoken_of(domain), load(settings, cache, fixed=True)))
    tests = []
    for domain in [target] if target else sources:
        settings = _settings(experiment, str(folders[domain]), seed, test)
        if target:
            whole = load(replace(settings, shots=0), cache, fixed=True).train
        else:
            whole = load(settings, cache, fixed=True).own
        split = _limited(whole, experiment.data.test_images)
        mine = [one.name for one in clients if target or one.domain == spoken_of(domain)]
        tests.append(ImageTest(domain, dict.fromkeys(mine, split)))
    return Scene(tuple(clients), tuple(tests), tuple(map(spoken_of, sources)))


def _base_to_new(experiment: Experiment, seed: int, cache: Cache | None) -> Scene:
    protocol = experiment.protocol
    root = experiment.data.path
    sets = protocol.datasets or ("",)
    clients: list[Client] = []
    tests: list[ImageTest] = []
    for number, name in enumerate(sets):
        path = str(Path(root).expanduser() / name) if name else root
        settings = replace(_settings(experiment, path, seed, experiment.data.test), halves=True)
        whole = load(settings, cache, fixed=True)
        blocks = _blocks(experiment, len(whole.train.classes), number, len(sets))
        if whole.base is None or whole.new is None:
            raise DataError(f"'{root}' has no base and new classes.")
        limit, prefix = experiment.data.test_images, f"{name}/" if name else ""
        own, base, new = (_limited(one, limit) for one in (whole.own, whole.base, whole.new))
        names: list[str] = []
        for block in blocks:
            train, validation = _only(whole.train, block), _only(whole.validation, block)
            data = replace(whole, train=train, validation=validation)
            clients.append(_client(len(clients), name, data))
            names.append(clients[-1].name)
        parts = (_only(own, block) for block in blocks)
        tests += [
            ImageTest(f"{prefix}base", dict.fromkeys(names, base)),
            ImageTest(f"{prefix}new", dict.fromkeys(names, new)),
            ImageTest(f"{prefix}own", dict(zip(names, parts, strict=True))),
        ]
    return Scene(tuple(clients), tuple(tests), tuple(set_name for set_name in sets if set_name))


def _blocks(experiment: Experiment, classes: int, number: int, sets: int) -> tuple[range, ...]:
    protocol = experiment.protocol
    if protocol.clients is None:
        return client_blocks(classes, protocol.classes_per_client)
    count = len(range(number, protocol.clients, sets))
    if not 1 <= count <= classes:
        raise ConfigError(
            f"protocol.clients is {protocol.clients}: {count} for a data set of {classes} base "
            "classes; give each data set at least one client and at most one for each class."
        )
    return splits.blocks(classes, count, classes // count)


def client_blocks(classes: int, each: int) -> tuple[range, ...]:
    """Return the class ids of the clients that share a data set's base classes, by FedTPG's code.

    The number of clients is rounded, half-way cases to the even number. So 50 classes by 20 are 2
    clients, of 20 and 30. Source: Qiu et al., ICLR 2024.
    """
    count = max(1, round(classes / each))
    return splits.blocks(classes, count, each)


def _client(at: int, domain: str, data: NodeData) -> Client:
    """Return a client whose learner has no tests: what is tested comes after the run."""
    nothing = Split(data.own.classes, ())
    return Client(f"node-{at + 1:02d}", domain, replace(data, own=nothing, base=None, new=None))


def _only(split: Split, block: range) -> Split:
    """Return the images of some classes, numbered anew from 0."""
    images = tuple(
        Image(image.path, image.label - block.start)
        for image in split.images
        if image.label in block
    )
    return Split(tuple(split.classes[at] for at in block), images)


def _limited(split: Split, most: int) -> Split:
    """Return at most so many images of each class, always the same ones."""
    if not most:
        return split
    limited: list[Image] = []
    for label, name in enumerate(split.classes):
        mine = [image for image in split.images if image.label == label]
        mine.sort(key=lambda image: str(image.path))
        if len(mine) > most:
            chosen = random.Random(f"limit/{name}").sample(range(len(mine)), most)
            mine = [mine[at] for at in sorted(chosen)]
        limited += mine
    return Split(split.classes, tuple(limited))
