"""Every policy's step on fake CUDA tensors: no tensor on another device, and no wait for the GPU.

torch's fake tensors compute shapes and devices alone. They raise an error where a number of a
tensor would be read, because there the host would wait for the device, and where tensors of two
devices meet. A mode beside them raises an error where numbers of the host are copied to the device,
because such a copy waits for all earlier work. The backward pass needs a real device: here it gives
gradients of the right shapes alone, and tests marked `gpu` cover it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fednode.clip import model as clip
from fednode.clip.text import TextTower
from fednode.clip.timm_vision import tower_of
from fednode.clip.vision import VisionTower
from fednode.core.types import Progress
from fednode.data.base import Image, Split
from fednode.learn import local_tuning
from fednode.learn.coop import CoOp
from fednode.learn.local_tuning import Batches, BatchSize
from fednode.learn.prompt_module import Batch
from fednode.policies import fedotp
from tests.unit.clip import eyes, tiny, twins
from tests.unit.learn.jobs import job
from tests.unit.policies.steps import TRAINED, arrays_of, batch_of, logits_of, module_of, trainings
from tests.unit.policies.tiny import CLASSES, tuning

LABELS = ((0, 2, 1, 1, 0), (1, 1, 0, 0, 1))
"""Of two batches; Fed-DPT encodes the texts of a batch's own classes."""
READS = {"diprompt"}
"""DiPrompT reads the domains of a batch: the prompts of other domains get no gradient."""
CUDA: Final = torch.device("cuda:0")


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raise an error where numbers of the host are copied to the device and the host waits."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        found = func(*args, **named)
        copies = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        if copies and not named.get("non_blocking", False):
            source = args[1] if func is torch.ops.aten.copy_.default else args[0]
            if source.device.type != found.device.type:
                raise RuntimeError(f"the host waits: a copy from {source.device} to {found.device}")
        return found


@pytest.fixture
def real(model: clip.FrozenClip, monkeypatch: pytest.MonkeyPatch) -> clip.FrozenClip:
    """Return the model on the CPU; memory that a real GPU needs pinned stays as it is."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda host: host)
    return model


def on_cuda(real: clip.FrozenClip, model: Any = None) -> clip.FrozenClip:
    """Return the model on a fake CUDA device; call it inside a FakeTensorMode."""
    if model is None:
        with torch.device("cuda"):
            model = tiny.clip(3)
    text = TextTower(model, real.tokenizer, "tiny")
    return replace(real, model=model, text=text, vision=VisionTower(model, "tiny"), device=CUDA)


@contextmanager
def backward(
    monkeypatch: pytest.MonkeyPatch, prompts: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Let the backward pass give every prompt a gradient of its shape, and read nothing."""

    def give(loss: torch.Tensor) -> None:
        assert loss.device == CUDA
        for leaf in prompts.values():
            leaf.grad = torch.empty_like(leaf)

    with monkeypatch.context() as patched:
        patched.setattr(torch.autograd, "backward", give)
        yield


THERE = (CUDA, (5, len(CLASSES)))
"""Where the logits of five images are to lie, and their shape."""


def step(
    real: clip.FrozenClip,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Any = None,
    kind: str = "sgd",
) -> tuple[torch.device, tuple[int, ...]]:
    """Run the learner's steps in each stage, and the classifier; return where its logits lie.

    Also return their shape. spoil: plants a fault.
    """
    arrays = arrays_of(module_of(real, name))
    monkeypatch.setattr(fedotp, "STEPS", 3)  # a step of a plan is like another
    with FakeTensorMode(allow_non_fake_inputs=True):
        module = module_of(on_cuda(real), name, optimizer=kind)
        if module.per_image is not None:
            assert module.per_image.of(torch.randn(5, 3, 32, 32, device=CUDA)).device == CUDA
        batch, other = (replace(batch_of(module), labels_host=labels) for labels in LABELS)
        for training in trainings(name, module, arrays):
            with backward(monkeypatch, training.prompts):
                training.step(batch)  # what a round computes once may wait
                with Waits():  # type: ignore[no-untyped-call]
                    for loss in training.step(other):
                        if spoil is not None:
                            spoil(loss)
            assert all(array.device == CUDA for array in module.carry(training.inputs).values())
        found = logits_of(training, batch)
        return found.device, tuple(found.shape)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "sgd") for name in TRAINED if name not in READS), ("promptfl", "adam"),
     ("promptfl", "adamw")],
)  # fmt: skip
def test_a_step_waits_for_nothing_and_stays_on_its_device(
    name: str, kind: str, real: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert step(real, name, monkeypatch, kind=kind) == THERE


def test_the_learner_reads_losses_after_its_last_step_alone(
    real: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own loop over three epochs of two batches, with the images' batches made before."""
    settings = tuning(epochs=3, batch_size=3)
    split = Split(CLASSES, tuple(Image(Path(f"{at}.png"), at % 3) for at in range(5)))
    initial = CoOp(real, settings).initial(0)
    shown: list[Progress] = []
    waits = Waits()  # type: ignore[no-untyped-call]

    def note(progress: Progress) -> None:
        shown.append(progress)
        if progress.step == 1:  # what a round computes once may wait
            stack.enter_context(waits)

    with FakeTensorMode(allow_non_fake_inputs=True):
        there = CoOp(on_cuda(real), settings)
        labels = torch.empty(3, dtype=torch.long, device=CUDA)
        seen = torch.randn(3, tiny.EMBED, device=CUDA)
        batch = Batch(targets=labels, image_features=seen, norms=torch.ones(3, device=CUDA))
        images: Any = SimpleNamespace(reader=lambda *_: lambda _: batch)
        batches = Batches(images, split, settings, BatchSize(3, CUDA), 1, lambda: False)
        params = {"context": torch.empty(initial["context"].shape, device=CUDA).requires_grad_()}
        monkeypatch.setattr(
            local_tuning, "to_params", lambda of, _: {key: params[key] for key in of}
        )
        wanted = pytest.raises(RuntimeError, match=r"the host waits|_local_scalar_dense")
        with wanted, ExitStack() as stack, backward(monkeypatch, params):
            begun = job(tensors=initial)
            local_tuning.tune(begun, there, batches, settings, lambda: False, note)
    assert [(told.step, told.steps) for told in shown] == [(at, 6) for at in range(1, 7)]


ALIKE = {
    "MetaCLIP 2",
    "MetaCLIP 2 with mT5's tokenizer",
    "CLIPA",
    "MobileCLIP-S",
    "RoBERTa",
    "XLM-R",
}
"""Text towers whose layers are those of CLIP or BERT."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.slow if one in ALIKE else ()) for one in twins.TEXT],
)
def test_every_text_tower_stays_on_its_device_and_waits_for_nothing(
    kind: str, tmp_path: Any, real: Any
) -> None:
    tokenizer_of, make = twins.TEXT[kind]
    tokenizer = tokenizer_of(tmp_path)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda"):
            model = make(tokenizer).eval().requires_grad_(False)
        tower = TextTower(model, tokenizer, kind)
        tokens = tower.tokens(CLASSES, 3)
        context = torch.randn(3, tower.width, device=CUDA).requires_grad_()
        deep = torch.randn(1, 3, tower.width, device=CUDA).requires_grad_()
        tower.encode(tokens, context, deep)
        with Waits():  # type: ignore[no-untyped-call]
            found = tower.encode(tokens, context, deep)
        assert (found.device, tuple(found.shape)) == (CUDA, (len(CLASSES), tiny.EMBED))


@pytest.mark.parametrize("kind", eyes.PROMPTED)
def test_every_image_tower_stays_on_its_device_and_waits_for_nothing(kind: str) -> None:
    model = eyes.PROMPTED[kind]().eval()  # timm reads numbers of tensors while it builds
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():
            for name, one in [*module.named_parameters(recurse=False)]:
                there = torch.empty(one.shape, device=CUDA)
                module._parameters[name] = torch.nn.Parameter(there, requires_grad=False)
            for name, one in module.named_buffers(recurse=False):
                module._buffers[name] = torch.empty(one.shape, dtype=one.dtype, device=CUDA)
        tower = tower_of(model, kind)
        high, wide = tower.image_size
        images = torch.randn(5, 3, high, wide, device=CUDA)
        prompts = torch.randn(2, 3, tower.width, device=CUDA).requires_grad_()
        with Waits():  # type: ignore[no-untyped-call]
            assert tower.encode(images, prompts).raw.device == CUDA
            tokens = tower.tokens(images)
            assert tower.encode(tokens, prompts).query.device == CUDA


@pytest.mark.parametrize(
    "fault",
    [
        lambda loss: loss.item(),
        lambda loss: loss[None].tolist(),
        float,
        lambda loss: loss + torch.ones(2),
        lambda loss: loss + torch.tensor([1.0], device=CUDA),
        lambda loss: loss.cpu(),
    ],
    ids=["item", "tolist", "float", "another device", "copy there", "copy back"],
)
def test_planted_faults_are_found(fault: Any) -> None:
    wanted = r"[Dd]evice|DataDependent|_local_scalar_dense|the host waits"
    with FakeTensorMode(allow_non_fake_inputs=True), Waits():  # type: ignore[no-untyped-call]
        loss = torch.randn((), device=CUDA)
        with pytest.raises(Exception, match=wanted):
            fault(loss)


def test_a_fault_in_a_step_is_found(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match=r"DataDependent|_local_scalar_dense"):
        step(real, "promptfl", monkeypatch, lambda loss: loss.item())
