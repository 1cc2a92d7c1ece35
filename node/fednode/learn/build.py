"""Build a torch learner from settings: model, data, objective and features."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from fednode.clip import model as clip
from fednode.clip.device import limit_memory
from fednode.clip.settings import ModelSettings
from fednode.clip.trunk import use_workers
from fednode.core.types import Tensors
from fednode.data.base import DataSettings, Image, NodeData, ProgressFn, Split, no_progress
from fednode.data.load import load
from fednode.data.pixels import Window
from fednode.data.rescan import Rescan
from fednode.evaluation.intervals import Numbers
from fednode.learn.cache import cache_of
from fednode.learn.features import Features, Images
from fednode.learn.prompt_module import PromptModule, to_params
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner


def build(
    model: ModelSettings,
    data: DataSettings,
    tuning: TuningSettings,
    cache: CacheSettings,
    module: type[PromptModule],
    config: Any,
    loaded: NodeData | None = None,
    progress: ProgressFn = no_progress,
    least_images: int = 1,
) -> TorchLearner:
    """Return the learner of one node.

    loaded: the splits, if they were loaded already. Data is loaded first, because its faults are
    found in less time than a model takes to load. progress: how many images are examined and
    encoded. least_images: privacy.least_images.
    """
    use_threads(tuning.threads)
    kept = cache_of(cache)
    splits = loaded or load(data, kept, progress)
    progress("loading the model", 0, 0)
    limit_memory(clip.device_of(model.device), tuning.gpu_share)
    frozen = clip.load(model)
    made = module(frozen, tuning, config)
    features = Features(frozen, kept, data.window, progress)
    progress("", 0, 0)
    rescan = Rescan(data, kept, splits)
    return TorchLearner(frozen, made, splits, tuning, features, rescan, least_images)


def use_threads(count: int) -> None:
    """Let torch use `count` threads; the bits of results depend on the number.

    0: all cores but one for tuning, which takes hours, and all cores for a convolutional trunk,
    which computes the tokens of new images and whose bits do not depend on the number.
    """
    cores = os.cpu_count() or 2
    torch.set_num_threads(count or max(1, cores - 1))
    use_workers(count or cores)


def predictor(
    module: PromptModule, window: Window = None
) -> Callable[[Tensors, Sequence[Path], tuple[str, ...]], Numbers]:
    """Return a function that classifies images; needs no training images.

    It gives probabilities [images, classes] in float64 for prompts, image files and class names.
    window: of grey values, by which images are decoded (data.window).
    """
    features, device = Features(module.clip, window=window), module.clip.device

    @torch.no_grad()
    def predict(prompts: Tensors, images: Sequence[Path], classes: tuple[str, ...]) -> Numbers:
        classify = module.classifier(to_params(prompts, device), classes)
        files = Images(features, module)
        # The labels are unknown and not used.
        split = Split(classes, tuple(Image(path, 0) for path in images))
        logits = [classify(batch) for batch in files.batches(split, lambda: False)]
        return torch.cat(logits).double().softmax(dim=1).cpu().numpy()

    return predict
