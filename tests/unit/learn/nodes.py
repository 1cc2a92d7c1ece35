"""Learners of tiny models on a few files, and what is kept of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fednode.clip.model import FrozenClip
from fednode.core.types import Job, Tensors
from fednode.data.base import Image, NodeData, Split
from fednode.learn.cache import FeatureCache
from fednode.learn.features import Features
from fednode.learn.torch_learner import TorchLearner
from fednode.testing.learners import ignore, never
from tests.unit.policies.steps import module_of

CLASSES: Final = ("lemon", "sea")
ROOM: Final = 10**8


def made(model: FrozenClip, folder: Path | None = None, limit: int = 0, **set_: Any) -> Features:
    """Return features as of a new start; with a folder, on the cache there."""
    cache = None if folder is None else FeatureCache(folder / "cache", ROOM)
    one = Features(model, cache, **set_)
    one.keep_pixels(limit)
    return one


def split_of(files: Sequence[Path]) -> Split:
    return Split(CLASSES, tuple(Image(path, at % 2) for at, path in enumerate(files)))


def learner_of(
    model: FrozenClip, files: Sequence[Path], name: str, folder: Path | None = None, **set_: Any
) -> TorchLearner:
    """Return a policy's learner whose files train, validate and test. set_: of tuning."""
    module = module_of(model, name, **{"batch_size": 2, "epochs": 2, "lr": 0.1, **set_})
    split = split_of(files)
    data = NodeData(train=split, validation=split, own=split, base=None, new=None)
    return TorchLearner(model, module, data, module.settings, made(model, folder))


def job_of(one: TorchLearner, number: int = 1, own: Sequence[str] = (), **set_: Any) -> Job:
    """Return a job of a learner. own: what it trains, of which the rest is the reference."""
    start = one.initial(1)
    mine = {name: array for name, array in start.items() if not own or name in own}
    rest = {name: array for name, array in start.items() if name not in mine}
    given = {"reference": Tensors(rest), "stage": "prompts", "rounds": 3, "seed": 5, **set_}
    return Job(**{"round": number, "tensors": Tensors(mine), **given})


def tuned(one: TorchLearner, job: Job | None = None, **set_: Any) -> Any:
    """Return the report of a job; None: the first one."""
    return one.tune(job or job_of(one, **set_), never, ignore)
