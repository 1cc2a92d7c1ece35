"""Tuned prompts from Python: load them, name images, hand their text features on.

    import node
    prompts = node.load("state-directory")     # or a .safetensors file of `fednode export`
    prompts.names(["photo.jpg"])

Importing `node` imports neither torch nor open_clip; using prompts does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from node import trees
from node.commands.plan import recall
from node.config import Settings, Source, policy_of, settings_of
from node.core.types import Array, Tensors
from node.errors import ConfigError, DataError, ModelError

SETTINGS_MAX: Final = 1 << 16
"""Characters of settings in an exported file's metadata."""

if TYPE_CHECKING:
    from node.clip.backbone import Backbone
    from node.learn.explain import Explainer, Near
    from node.learn.objective import Objective
    from node.learn.settings import TuningSettings


@dataclass(frozen=True)
class Prompts:
    """What a node tuned. arrays: by name; classes: those it was tuned on; round: when."""

    settings: Settings = field(repr=False)
    classes: tuple[str, ...]
    arrays: Tensors
    round: int

    @property
    def policy(self) -> str:
        """Name of the gossip policy."""
        return str(self.settings.policy["name"])

    @property
    def model(self) -> str:
        """Name of the backbone."""
        return self.settings.model.name

    def probabilities(
        self, images: Sequence[str | Path], classes: Sequence[str] | None = None
    ) -> Array:
        """Return softmax probabilities [images, classes] in float32.

        classes: any names; None for those that the prompts were tuned on. Raise DataError for a
        file that is not there, ConfigError for classes that are none.
        """
        paths, names = _images(images), self._names(classes)
        return self._predictor(self.arrays, paths, names)

    def names(
        self, images: Sequence[str | Path], classes: Sequence[str] | None = None
    ) -> list[str]:
        """Return the likeliest class name of each image."""
        known = self._names(classes)
        return [known[int(row.argmax())] for row in self.probabilities(images, known)]

    def text_features(self, classes: Sequence[str] | None = None) -> tuple[Array, float]:
        """Return unit text features [classes, width] and the logit scale, as open_clip has them.

        Raise ModelError for prompts that change how images are seen.
        """
        from node.learn.share import matrix

        found, scale = matrix(self._frozen, *self._made_of, self.arrays, self._names(classes))
        features: Array = found.numpy()
        return features, scale

    def words(self, top: int = 5) -> dict[str, list[list[Near]]]:
        """Return the vocabulary's nearest words to each vector of each learned context.

        Raise ModelError for prompts that put no vectors before the text tower.
        """
        return self._explainer.words(top)

    def maps(self, images: Sequence[str | Path], classes: Sequence[str]) -> tuple[Array, Array]:
        """Return class activation maps [images, rows, columns], 0 to 1, without and with prompts.

        classes: one for each image, to look for in it. Raise ModelError, DataError, ConfigError.
        """
        if len(classes) != len(images):
            raise ConfigError(
                f"{len(images)} images and {len(classes)} classes: give one for each."
            )
        known = tuple(dict.fromkeys((*self.classes, *classes)))
        return self._explainer.maps(_images(images), classes, self._names(known))

    def image_features(self, images: Sequence[str | Path]) -> tuple[Array, Array | None]:
        """Return unit features [images, width] without and with the tuned prompts.

        The second is None for prompts that leave images as the model sees them.
        """
        return self._explainer.features(_images(images))

    @property
    def _made_of(self) -> tuple[TuningSettings, type[Objective], Any]:
        """Tuning, objective and the policy's own settings: what uses of prompts ask for."""
        from node import registry

        kind, config = policy_of(self.settings)
        return self.settings.tuning, registry.objective(kind.name), config

    @cached_property
    def _explainer(self) -> Explainer:
        """The model once more, in float32, watched."""
        from node.learn.explain import Explainer

        return Explainer(self.settings.model, *self._made_of, self.arrays)

    @cached_property
    def _frozen(self) -> Backbone:
        """The model, loaded once."""
        from node.clip import backbone

        return backbone.load(self.settings.model)

    @cached_property
    def _predictor(self) -> Callable[[Tensors, Sequence[Path], tuple[str, ...]], Array]:
        """What names images with given prompts."""
        from node.learn.build import predictor

        return predictor(self._frozen, *self._made_of)

    def _names(self, classes: Sequence[str] | None) -> tuple[str, ...]:
        names = self.classes if classes is None else tuple(classes)
        if not names or not all(names):
            raise ConfigError("classes holds an empty name, or none at all.")
        return names


def _images(given: Sequence[str | Path]) -> list[Path]:
    """Return paths; raise DataError for a file that is not there."""
    paths = [Path(one) for one in given]
    for path in paths:
        if not path.is_file():
            raise DataError(f"There is no image file {path}: give the path of an image.")
    return paths


def _described(facts: Mapping[str, str], file: Path) -> tuple[Settings, tuple[str, ...], int]:
    """Return the settings, class names and round in an exported file's metadata.

    Raise ConfigError for settings that are wrong, ModelError for metadata that is none of ours.
    """
    try:
        own: Any = trees.read(facts.get("settings", "{}"), SETTINGS_MAX)[1]
        classes = tuple(map(str, json.loads(facts.get("classes", "[]"))))
        number = int(facts.get("round", "0"))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as fault:
        raise ModelError(
            f"{file} holds metadata that `fednode export` did not write: export it again."
        ) from fault
    settings = settings_of(Source(str(file), own if isinstance(own, dict) else {}))
    return settings, classes, number


def load(path: str | Path) -> Prompts:
    """Return the prompts of a state directory, or of a file that `fednode export` wrote.

    The model of a state directory is loaded, and must be the one that the prompts were tuned with.
    Raise StateError if it is another one, StateError or ModelError where there are no prompts,
    ConfigError where they know no images.
    """
    place = Path(path)
    if place.is_file():
        from node.learn.share import read_arrays

        arrays, facts = read_arrays(place)
        settings, classes, number = _described(facts, place)
        return Prompts(settings, classes, arrays, number)
    tuned = recall(place)
    if tuned.settings.tuning.kind != "torch":
        raise ConfigError(
            f"{place} was tuned with tuning.kind {tuned.settings.tuning.kind!r}, which knows no "
            "images."
        )
    prompts = Prompts(tuned.settings, tuned.classes, tuned.prompts, tuned.round)
    tuned.require_model(prompts._frozen.fingerprint)
    return prompts
