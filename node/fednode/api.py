"""Tuned prompts from Python: load them, classify images, export their text features.

    import fednode

    prompts = fednode.load("state-directory")     # or a .safetensors file of `fednode export`
    prompts.names(["photo.jpg"])                # or Pillow images, arrays, tensors

Importing `fednode` imports neither torch nor open_clip; using prompts does. Images are paths,
Pillow images, numpy arrays or torch tensors (fednode.data.memory.files).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import yaml

from fednode import units
from fednode.app.state_dir import recall
from fednode.core.types import Array, Tensors
from fednode.data.folder import scan
from fednode.data.memory import files
from fednode.errors import ConfigError, ModelError
from fednode.settings import trees
from fednode.settings.read import Settings, Source, stored_settings

SETTINGS_MAX: Final = 1 << 16
"""Most characters of settings in an exported file's metadata."""
SENDER: Final = "rows/"
"""Prefix of the arrays that hold the class sums of one node, before its name; "" is this node."""

if TYPE_CHECKING:
    from fednode.clip.model import FrozenClip
    from fednode.evaluation.intervals import Numbers
    from fednode.evaluation.results import Evaluation
    from fednode.learn.explain import Explainer, Near
    from fednode.learn.prompt_module import PromptModule


@dataclass(frozen=True)
class Prompts:
    """The tuned prompts of a node.

    classes: the names that the prompts were tuned on. arrays: the prompts by name. round: the round
    that they were tuned in. notes: sentences on newer rounds that are damaged.
    """

    settings: Settings = field(repr=False)
    classes: tuple[str, ...]
    arrays: Tensors
    round: int
    notes: tuple[str, ...] = ()

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return self.settings.policy.name

    @property
    def model(self) -> str:
        """Name of the backbone."""
        return self.settings.model.name

    @property
    def known(self) -> tuple[str, ...]:
        """Names of all classes of which some node has images, if the policy exchanges class sums.

        With other policies they are `classes`.
        """
        return tuple(sorted({*self.classes, *self.arrays.classes}))

    def answers(self, classes: Sequence[str] | None = None) -> str:
        """Return a sentence on which classifier answers for these classes; "" if there is one.

        Only policies that exchange class sums have several.
        """
        from fednode.learn.prompt_module import to_params

        params = to_params(self.arrays, self._frozen.device)
        return self._module.describe_classifier(params, self._names(classes))

    def left_out(self, classes: Sequence[str]) -> str:
        """Return a sentence on classes of other nodes that are not among these; "" if none are.

        Only policies that exchange class sums know other nodes' classes.
        """
        lacking = {at for at, name in enumerate(self.arrays.classes) if name not in classes}
        senders = [
            name.removeprefix(SENDER)
            for name, rows in sorted(self.arrays.items())
            if name.startswith(SENDER)
            and name != SENDER
            and not lacking.isdisjoint(rows[:, 0].astype(int).tolist())
        ]
        names = [name for name in self.known if name not in classes]
        if not senders or not names:
            return ""
        nodes, shown = units.listed(senders, 1), units.listed(names, 3)
        verb = "know" if senders[1:] else "knows"
        return f"{nodes} also {verb} {shown}: use --all-classes to choose among these, too"

    def probabilities(self, images: Sequence[Any], classes: Sequence[str] | None = None) -> Array:
        """Return softmax probabilities [images, classes] in float32.

        images: paths of files, Pillow images, numpy arrays [H, W] or [H, W, C], or torch tensors
        [C, H, W]; floats from 0 to 1, or uint8. classes: any names; None for those that the prompts
        were tuned on. Raise DataError if a file does not exist or an image has another type, shape
        or range, ConfigError if there is no class name or an empty one.
        """
        names = self._names(classes)
        with files(images) as paths:
            return self._predictor(self.arrays, paths, names).astype(np.float32)

    def evaluate(
        self,
        images: Sequence[Any] | str | Path,
        labels: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
    ) -> Evaluation:
        """Return accuracy, confusion matrix, and sensitivity, specificity and AUC by class.

        images: as for `probabilities`, with the true class name of each image in `labels`; or the
        path of a folder with a folder of images for each class, without labels. classes: the names
        to choose among; None for those that the prompts were tuned on. Raise ConfigError if there
        is no image, if there are not as many labels as images, or if a label is none of the
        classes; DataError if a file or folder does not exist.
        """
        from fednode.evaluation.results import evaluation

        names = self._names(classes)
        if isinstance(images, str | Path):
            if labels is not None:
                raise ConfigError(
                    f"images is the folder {images}, whose folders name the classes: leave labels "
                    "out, or give a list of images."
                )
            found_classes = scan(Path(images)).classes
            labels = [folder.display for folder in found_classes for _ in folder.images]
            images = [path for folder in found_classes for path in folder.images]
        labels = labels or ()
        if not len(images) or len(labels) != len(images):
            raise ConfigError(
                f"{len(images)} images and {len(labels)} labels: give at least one image, and one "
                "label for each."
            )
        place = {name: at for at, name in enumerate(names)}
        if len(place) < len(names):
            raise ConfigError("classes names a class twice: name each class once.")
        strange = next((label for label in labels if label not in place), None)
        if strange is not None:
            raise ConfigError(
                f"labels holds {strange!r}; each label must be one of {', '.join(place)}."
            )
        with files(images) as paths:
            probabilities = self._predictor(self.arrays, paths, names)
        return evaluation(names, [place[label] for label in labels], probabilities)

    def names(self, images: Sequence[Any], classes: Sequence[str] | None = None) -> list[str]:
        """Return the most probable class name of each image."""
        known = self._names(classes)
        return [known[int(row.argmax())] for row in self.probabilities(images, known)]

    def text_features(self, classes: Sequence[str] | None = None) -> tuple[Array, float]:
        """Return unit text features [classes, width] and the logit scale, as open_clip has them.

        Raise ModelError if the prompts change image features.
        """
        from fednode.learn.export import as_texts

        found = as_texts(*self.affine(classes))
        if found is None:
            raise ModelError(
                f"policy {self.policy} classifies with weights and a bias, which are no text "
                "features: use Prompts.affine."
            )
        return found

    def affine(self, classes: Sequence[str] | None = None) -> tuple[Array, Array]:
        """Return weights [classes, width] and bias [classes] of the classifier, in float32.

        Unit image features @ weights.T + bias are the logits. Raise ModelError if the prompts
        change image features, or if no weights give their logits.
        """
        from fednode.learn.export import affine

        return affine(self._module, self.arrays, self._names(classes))

    def words(self, top: int = 5) -> dict[str, list[list[Near]]]:
        """Return the vocabulary's nearest words to each vector of each learned context.

        Raise ModelError if the prompts have no vectors for the text tower.
        """
        return self._explainer.words(top)

    def maps(self, images: Sequence[Any], classes: Sequence[str]) -> tuple[Array, Array]:
        """Return maps [images, rows, columns] (0..1) of what matters, without and with prompts.

        A cell says by how much the class's logit falls if this part of the image is hidden.
        classes: the class to look for in each image. Raise ConfigError if there are not as many
        classes as images, DataError if a file does not exist, ModelError if the policy classifies
        by each patch of an image.
        """
        if len(classes) != len(images):
            raise ConfigError(
                f"{len(images)} images and {len(classes)} classes: give one for each."
            )
        known = tuple(dict.fromkeys((*self.classes, *classes)))
        with files(images) as paths:
            return self._explainer.maps(paths, classes, self._names(known))

    def image_features(self, images: Sequence[Any]) -> Array:
        """Return the frozen model's unit features [images, width]."""
        with files(images) as paths:
            return self._explainer.features(paths)

    def _module_of(self, frozen: FrozenClip) -> PromptModule:
        """Return what the policy tunes, for a frozen model."""
        from fednode import registry

        chosen, tuning = self.settings.policy, self.settings.tuning
        made: PromptModule = registry.prompt_module(chosen.name)(frozen, tuning, chosen.config)
        return made

    @cached_property
    def _module(self) -> PromptModule:
        return self._module_of(self._frozen)

    @cached_property
    def _explainer(self) -> Explainer:
        """The explainer, which computes in float32."""
        from fednode.learn.explain import Explainer

        window = self.settings.data.window
        return Explainer(self._frozen, self._module_of, self.arrays, window)

    @cached_property
    def _frozen(self) -> FrozenClip:
        """The frozen model, loaded once."""
        from fednode.clip import model as clip

        return clip.load(self.settings.model)

    @cached_property
    def _predictor(self) -> Callable[[Tensors, Sequence[Path], tuple[str, ...]], Numbers]:
        """The function that classifies images with given prompts."""
        from fednode.learn.build import predictor

        return predictor(self._module, self.settings.data.window)

    def _names(self, classes: Sequence[str] | None) -> tuple[str, ...]:
        names = self.classes if classes is None else tuple(classes)
        if not names or not all(names):
            raise ConfigError("classes holds an empty name, or none at all.")
        return names


def _described(facts: Mapping[str, str], file: Path) -> tuple[Settings, tuple[str, ...], int]:
    """Return the settings, class names and round in an exported file's metadata.

    Raise ConfigError for wrong settings, ModelError for metadata that fednode did not write.
    """
    try:
        own: Any = trees.read(facts.get("settings", "{}"), SETTINGS_MAX)[1]
        classes = tuple(map(str, json.loads(facts.get("classes", "[]"))))
        number = int(facts.get("round", "0"))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as fault:
        raise ModelError(
            f"{file} holds metadata that `fednode export` did not write: export it again."
        ) from fault
    source = Source(str(file), own if isinstance(own, dict) else {})
    return stored_settings(source, "export it again with this version."), classes, number


def load(path: str | Path) -> Prompts:
    """Return the prompts of a state directory, or of a file that `fednode export` wrote.

    For a state directory the model is loaded, too. Raise StateError if it is not the model that the
    prompts were tuned with, StateError or ModelError if there are no prompts, ConfigError if they
    were tuned without images.
    """
    place = Path(path)
    if place.is_file():
        from fednode.learn.export import read_arrays

        arrays, facts = read_arrays(place)
        settings, classes, number = _described(facts, place)
        return Prompts(settings, classes, arrays, number)
    tuned = recall(place)
    if tuned.settings.tuning.kind != "torch":
        raise ConfigError(
            f"{place} was tuned with tuning.kind {tuned.settings.tuning.kind!r}, which knows no "
            "images."
        )
    prompts = Prompts(tuned.settings, tuned.classes, tuned.prompts, tuned.round, tuned.notes)
    tuned.require_model(prompts._frozen.fingerprint)
    return prompts
