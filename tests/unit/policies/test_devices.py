"""Every policy and every kind of model gives on a GPU what it gives on a CPU, without a wait.

Steps with recorded passes (CUDA graphs) are ordinary steps, but for rounding: a pass with several
results adds their gradients in another order.

As slow tests they run on the CPU, too, where a model is compared with itself. So what they say of a
GPU is written by code that runs everywhere; `make test-gpu` runs them on a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fednode import registry
from fednode.clip import model as clip
from fednode.clip.cuda_graphs import GraphedPasses
from fednode.clip.settings import ModelSettings
from fednode.core.types import Job, Progress
from fednode.data.base import DataSettings
from fednode.data.load import load
from fednode.learn.features import Features
from fednode.learn.torch_learner import TorchLearner
from fednode.policies import fedotp
from tests.unit.clip import eyes, tiny, twins
from tests.unit.clip.test_cuda_graphs import recorder
from tests.unit.policies.steps import TRAINED, arrays_of, batch_of, logits_of, module_of, trainings
from tests.unit.policies.tiny import CLASSES, tuning

Precision = Literal["float32", "bfloat16"]
DEVICES: Final = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
NEAR: Final[dict[str, float]] = {"float32": 1e-4, "bfloat16": 0.1}
"""Largest difference, as a share of the largest number."""
EYES: Final[dict[str, eyes.Make]] = {"ViT": tiny.clip, **eyes.PROMPTED, **eyes.OTHERS}


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let convolutions on a GPU have the precision of float32, which cuDNN rounds by default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def on(device: str, precision: Precision, model: Any = None, tokenizer: Any = None) -> Any:
    """Return a model on a device; no model: a tiny CLIP."""
    made = tiny.clip(3) if model is None else model
    return tiny.frozen(made, tokenizer, device=device, precision=precision)


@contextmanager
def waiting_for_nothing(device: str) -> Iterator[None]:
    """Raise an error on a GPU where the host waits for it."""
    if device == "cpu":
        yield
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@dataclass(frozen=True, slots=True)
class Steps:
    """What two steps and a classifier gave, on the CPU."""

    losses: list[float]
    gradients: dict[str, Tensor]
    prompts: dict[str, Tensor]
    logits: Tensor


def steps(frozen: clip.FrozenClip, name: str) -> list[Steps]:
    """Take two steps of each stage of a policy; the second one may wait for nothing."""
    found, module = [], module_of(frozen, name)
    for training in trainings(name, module, arrays_of(module), 0.05):
        batch, prompts = batch_of(module), training.prompts
        losses = training.step(batch)
        with waiting_for_nothing(frozen.device.type):
            losses += training.step(batch)
        held = {key: leaf.detach().cpu() for key, leaf in prompts.items()}
        slopes = {key: leaf.grad.cpu() for key, leaf in prompts.items() if leaf.grad is not None}
        logits = logits_of(training, batch).cpu()
        found.append(Steps([*map(float, losses)], slopes, held, logits))
    return found


def near(ours: Tensor, theirs: Tensor, bound: float, least: float = 1e-6) -> bool:
    scale = max(float(theirs.abs().max()), least) if theirs.numel() else 1.0
    return not theirs.numel() or float((ours - theirs).abs().max()) <= bound * scale


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("name", TRAINED)
def test_a_policy_s_steps_are_those_of_the_cpu(
    name: str, precision: Precision, device: str
) -> None:
    bound = NEAR[precision]
    wanted = steps(on("cpu", "float32"), name)
    for ours, theirs in zip(steps(on(device, precision), name), wanted, strict=True):
        assert ours.losses == pytest.approx(theirs.losses, rel=bound, abs=bound)
        assert set(theirs.gradients) <= set(ours.gradients)
        for key, value in theirs.prompts.items():
            assert near(ours.prompts[key], value, bound), key
        assert near(ours.logits, theirs.logits, 3 * bound)
        if precision == "float32":
            slopes = theirs.gradients
            # Some gradients are zero but for rounding, such as that of a key's bias in FedTPG.
            most = max(float(slope.abs().max()) for slope in slopes.values() if slope.numel())
            for key, value in slopes.items():
                assert near(ours.gradients[key], value, 10 * bound, 1e-4 * most), key


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("kind", twins.TEXT)
def test_a_text_tower_of_each_kind_is_that_of_the_cpu(
    kind: str, precision: Precision, device: str, tmp_path: Any
) -> None:
    found = []
    for place, exactness in (("cpu", "float32"), (device, precision)):
        frozen = on(place, exactness, *twins.twin(kind, tmp_path))  # type: ignore[arg-type]
        draw = torch.Generator().manual_seed(1)
        context = (0.1 * torch.randn(3, frozen.text.width, generator=draw)).to(frozen.device)
        deep = (0.1 * torch.randn(1, *context.shape, generator=draw)).to(frozen.device)
        leaves = [context.requires_grad_(), deep.requires_grad_()]
        out = frozen.text.encode(frozen.text.tokens(CLASSES, 3), *leaves)
        weights = torch.randn(out.shape, generator=draw).to(frozen.device)
        slopes = torch.autograd.grad((out * weights).sum(), leaves)
        found.append([one.detach().cpu() for one in (out, *slopes)])
    bound = NEAR[precision]
    for ours, theirs, factor in zip(found[1], found[0], (1, 10, 10), strict=True):
        if precision == "float32" or factor == 1:
            assert near(ours, theirs, factor * bound)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", EYES)
def test_an_image_tower_of_each_kind_is_that_of_the_cpu(kind: str, device: str) -> None:
    found = []
    for place in ("cpu", device):
        frozen = on(place, "float32", eyes.twin(EYES[kind]))
        draw = torch.Generator().manual_seed(1)
        shown = torch.randn(3, 3, *frozen.vision.image_size, generator=draw).to(frozen.device)
        parts = [F.normalize(frozen.encode_raw(shown), dim=-1)]
        if frozen.vision.promptable:
            prompts = 0.3 * torch.randn(2, 2, frozen.vision.width, generator=draw)
            leaf = prompts.to(frozen.device).requires_grad_()
            seen = frozen.vision.encode(shown, leaf).features
            weights = torch.randn(seen.shape, generator=draw).to(frozen.device)
            parts += [seen, *torch.autograd.grad((seen * weights).sum(), leaf)]
        found.append([one.detach().cpu() for one in parts])
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert near(ours, theirs, 1e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["zerodfl", "gda", "fedclip", "feddpt"])
def test_a_learner_s_round_is_that_of_the_cpu(name: str, device: str) -> None:
    """Images decoded, encoded, trained on and classified, with the shipped model."""
    split = DataSettings(classes=("accordion", "barrel", "beaver", "gerenuk"), halves=True, shots=2)
    data, found = load(split), []
    for place in ("cpu", device):
        frozen = clip.load(ModelSettings(device=place))
        objective = module_of(frozen, name, context_length=4)
        learner = TorchLearner(frozen, objective, data, tuning(context_length=4), Features(frozen))
        first = learner.initial(1)
        stage = getattr(registry.policy(name), "stages", ("prompts",))[0]
        asked = Job(round=1, stage=stage, tensors=first, seed=1, rounds=1, domain="x")
        shown: list[Progress] = []
        found.append(learner.tune(asked, lambda: False, shown.append))
        assert objective.closed_form or shown
    theirs, ours = found
    assert set(ours.metrics) == set(theirs.metrics)
    for key, value in theirs.tensors.items():
        assert near(torch.tensor(ours.tensors[key]), torch.tensor(value), 1e-3), key


# Recorded passes ----------------------------------------------------------------------------------

STEPS: Final = 16
BOUND: Final = {"float32": 1e-5, "bfloat16": 0.02}
"""Largest difference, as a share of the largest number."""
WITHOUT_TOWERS: Final = {"fedclip"}
"""Policies that tune nothing in front of a tower."""


def trained(
    frozen: clip.FrozenClip, name: str, captures: GraphedPasses | None
) -> list[dict[str, Tensor]]:
    """Return the prompts after STEPS steps of each stage of a policy.

    The batches have five and two images in turns, as an epoch's last batch may have fewer.
    """
    found, module = [], module_of(frozen, name)
    for training in trainings(name, module, arrays_of(module), 0.05):
        shown = [batch_of(module, count) for count in (5, 2)]
        with captures or nullcontext():
            for at in range(STEPS):
                training.step(shown[at % 2])
        found.append({key: leaf.detach().cpu() for key, leaf in training.prompts.items()})
    return found


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "float32"),
        pytest.param("cpu", "bfloat16", marks=pytest.mark.slow),
        pytest.param("cuda", "float32", marks=pytest.mark.gpu),
        pytest.param("cuda", "bfloat16", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("name", TRAINED)
def test_recorded_steps_are_ordinary_steps(
    name: str, precision: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedotp, "STEPS", 3)  # a step of a plan is like another
    frozen = on(device, precision)
    wanted = trained(frozen, name, None)
    captures = GraphedPasses(recorder(device))
    found = trained(frozen, name, captures)
    assert (captures._count > 0) == (name not in WITHOUT_TOWERS)
    assert captures.notes == ()
    for ours, theirs in zip(found, wanted, strict=True):
        for key, value in theirs.items():
            assert near(ours[key], value, BOUND[precision]), key
