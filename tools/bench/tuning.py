"""`python -m tools.bench.tuning`: a step of the learner that nodes run, beside open_clip.

The reference is open_clip's own encoders, forward and backward to what they embed: the texts of all
classes at full length, and a batch of images if the policy tunes visual prompts. It has no loss and
no optimizer, so it is the least that a step costs where open_clip's encoders are called as they
are. tests/unit/policies/test_against_open_clip.py compares the gradients.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click
import torch
from torch import Tensor

from fednode import registry
from fednode.clip import model as clip
from fednode.clip.hooked_text import embedding_of
from fednode.clip.load import random_model
from fednode.clip.model import FrozenClip
from fednode.clip.settings import MINI, ModelSettings
from fednode.core.types import Job
from fednode.data.base import DataSettings
from fednode.data.builtin import ASSETS, FOLDER
from fednode.data.load import load
from fednode.learn.build import use_threads
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.learn.torch_learner import TorchLearner
from fednode.settings.read import chosen_of
from tools.bench.timer import Figure, Timer, as_json, show

POLICIES: Final = ("zerodfl", "promptfl", "fedotp", "fedpgp", "fedmaple", "plan")
SHOTS: Final = 8
STEPS: Final = 4
"""Of the learner in a turn: a part of a tuning's cost comes once."""
ENCODED: Final = 32
"""Images of the row that encodes images and tunes nothing."""
NOTE: Final = (
    "Seconds a step, medians. What nodes keep of images is in the cache. reference: open_clip's\n"
    "encoders on the same texts (and images, if prompts are visual), forward and backward.\n"
    f"encoding: {ENCODED} images, forward alone, nothing cached."
)


def model_of(name: str, precision: Any, device: str) -> FrozenClip:
    """Return a model with random weights, or fednode-mini with its own."""
    torch.manual_seed(0)
    settings = ModelSettings(name=name, device=device, precision=precision)
    return clip.load(settings) if name == MINI else clip.freeze(random_model(name), settings)


def reference(
    frozen: FrozenClip, classes: tuple[str, ...], length: int, images: int
) -> Callable[[], None]:
    """Return a step of open_clip's encoders; images: in a batch, 0 if their features are cached."""
    model: Any = frozen.model
    held = " ".join(["X"] * length)
    texts = [f"{held} {name}." for name in classes]
    ids = frozen.tokenizer(texts, frozen.text.length_max).to(frozen.device)
    embedding = embedding_of(getattr(model, "text", model))
    pixels = images_of(frozen, images) if images else None

    def learned(_: Any, __: Any, out: Tensor) -> Tensor:
        return out.detach().requires_grad_()

    def step() -> None:
        handle = embedding.register_forward_hook(learned)
        try:
            encoded = model.encode_text(ids).float().sum()
        finally:
            handle.remove()
        if pixels is not None:
            encoded = encoded + model.encode_image(pixels.requires_grad_()).float().sum()
        torch.autograd.backward(encoded)

    return step


def images_of(frozen: FrozenClip, count: int) -> Tensor:
    side = frozen.model.visual.image_size
    high, wide = side if isinstance(side, tuple) else (side, side)
    return torch.randn(count, 3, high, wide, device=frozen.device)


def in_turns(
    frozen: FrozenClip,
    row: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    repeats: int,
    steps: int = 1,
) -> dict[str, Figure]:
    """Return a row: both works in turns, after two turns that are not counted.

    steps: that ours takes in a turn; theirs takes one.
    """
    timer = Timer()
    for turn in range(2 + repeats):
        for side, work in (("ours", ours), ("theirs", theirs)):
            with timer.of(side if turn > 1 else "warm"):
                work()
                if frozen.device.type == "cuda":
                    torch.cuda.synchronize(frozen.device)
    theirs_s, ours_s = timer.median("theirs"), timer.median("ours") / steps
    return {"row": row, "reference, s": theirs_s, "ours, s": ours_s, "ratio": theirs_s / ours_s}


def step(
    frozen: FrozenClip, policy: str, classes: int, repeats: int, cache: str, threads: int
) -> dict[str, Figure]:
    """Measure the steps of a policy, with the built-in images of so many classes."""
    chosen, kept = chosen_of({"name": policy}), cache_of(CacheSettings(folder=cache))
    brought: dict[str, Any] = dict(chosen.kind.tuning)
    tuning = replace(TuningSettings(**brought), epochs=1, iterations=STEPS, threads=threads)
    folders = sorted(one.name for one in (ASSETS / FOLDER).iterdir() if one.is_dir())
    data = load(DataSettings(shots=SHOTS, classes=tuple(folders[:classes])), kept)
    objective = registry.prompt_module(policy)(frozen, tuning, chosen.config)
    learner = TorchLearner(frozen, objective, data, tuning, Features(frozen, kept))
    job = Job(round=1, stage="prompts", tensors=learner.initial(1), seed=1, measure=False)
    images = min(tuning.batch_size, learner.samples) if objective.uses_image_encoder else 0
    vectors = tuning.fitted(frozen.text.length_max).vectors
    theirs = reference(frozen, learner.classes, vectors, images)

    def ours() -> None:
        learner.tune(job, lambda: False, lambda _: None)

    return in_turns(frozen, policy, ours, theirs, repeats, STEPS)


def encoding(frozen: FrozenClip, repeats: int) -> dict[str, Figure]:
    """Measure how fast images are encoded, as `check`, `predict` and the cache encode them."""
    images, model = images_of(frozen, ENCODED), frozen.model

    def theirs() -> None:
        model.encode_image(images)  # with gradients, a trunk runs torch's own convolutions

    return in_turns(frozen, "encoding", lambda: frozen.encode_raw(images), theirs, repeats)


@click.command()
@click.option("--model", default=MINI, show_default=True, help="open_clip architecture.")
@click.option("--policy", multiple=True, help=f"May be repeated ({', '.join(POLICIES)}).")
@click.option("--classes", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="Turns.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda:N.")
@click.option(
    "--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True
)
@as_json
def tuning(
    model: str,
    policy: tuple[str, ...],
    classes: int,
    repeats: int,
    threads: int,
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Time a step of the learner of each policy on the built-in images, beside open_clip."""
    logging.getLogger().addHandler(logging.NullHandler())  # open_clip warns of random weights
    use_threads(threads)
    frozen = model_of(model, precision, device)
    rows = [encoding(frozen, repeats)]
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as cache:
        for name in policy or POLICIES:
            click.echo(name, err=True)
            rows.append(step(frozen, name, classes, repeats, cache, threads))
    show(f"{model}, {precision}, {device}, {threads} threads", rows, as_json, NOTE)


if __name__ == "__main__":
    tuning()
