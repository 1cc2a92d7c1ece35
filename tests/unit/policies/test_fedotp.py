"""FedOTP against float64: the plan, its gradient, the logits, the loss; counts as published."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.learn.prompt_module import Batch
from fednode.policies.fedotp import FedOTPConfig, transport
from fednode.policies.fedotp import FedOTPPrompts as FedOTP
from tests.unit.learn.jobs import leaves
from tests.unit.policies.tiny import (
    CLASSES,
    Wide,
    cross_entropy,
    drawn,
    loss_of,
    pixels,
    shown_by,
    tuning,
    wide,
)

TIGHT: dict[str, Any] = {"threshold": 1e-11, "steps": 3_000}


def similarities(*shape: int) -> Tensor:
    draw = torch.Generator().manual_seed(8)
    return 0.9 * (2 * torch.rand(shape, generator=draw, dtype=torch.float64) - 1)


def by_hand(s: Wide, mass: float, epsilon: float, threshold: float, steps: int) -> Wide:
    """Return the plan of one image and class by the released code's steps, number by number.

    With mass 1 these are the steps of its balanced Sinkhorn.
    """
    most = 1.0 if mass < 1.0 else math.inf
    patches, prompts = s.shape
    k = np.exp(-(1.0 - s) / epsilon)
    u, v = np.ones(patches), np.ones(prompts)
    for _ in range(steps):
        for m in range(patches):
            u[m] = min(most, (1.0 / patches) / sum(k[m, n] * v[n] for n in range(prompts)))
        fresh = [
            (mass / prompts) / sum(k[m, n] * u[m] for m in range(patches)) for n in range(prompts)
        ]
        moved = np.abs(np.log(fresh) - np.log(v)).mean()
        v = np.array(fresh)
        if moved < threshold:
            break
    return np.asarray(u[:, None] * k * v)


@pytest.mark.parametrize(("mass", "epsilon"), [(0.8, 0.1), (0.3, 0.05), (1.0, 0.1), (0.8, 1.0)])
def test_the_plan_is_the_published_one(mass: float, epsilon: float) -> None:
    s = similarities(2, 3, 7, 2)
    found = transport(s, mass, epsilon, 1e-3, 100)
    rough = transport(s.float(), mass, epsilon, 1e-3, 100)
    for image in range(2):
        for at in range(3):
            wanted = by_hand(wide(s[image, at]), mass, epsilon, 1e-3, 100)
            assert np.allclose(wide(found[image, at]), wanted, atol=1e-12)
            assert np.allclose(wide(rough[image, at]), wanted, atol=1e-5)


def test_the_plan_solves_the_convex_problem() -> None:
    """The conditions of Karush, Kuhn and Tucker, which only the one minimum fulfils."""
    s, mass, epsilon = similarities(4, 9, 2), 0.6, 0.2
    plan = wide(transport(s, mass, epsilon, **TIGHT))
    assert np.allclose(plan.sum(axis=1), mass / 2, atol=1e-10)
    rows = plan.sum(axis=2)
    assert (rows <= 1 / 9 + 1e-10).all()
    # log T = (f_m + g_n - cost) / epsilon, f <= 0, and f = 0 in rows with room.
    scales = np.log(plan) - (wide(s) - 1.0) / epsilon
    room = rows < 1 / 9 - 1e-6
    assert room.any()
    assert (~room).any()
    for one, free in zip(scales, room, strict=True):
        f = one - one[free][0]
        assert np.allclose(f[:, :1], f, atol=1e-8), "f does not depend on the prompt"
        assert np.allclose(f[free], 0.0, atol=1e-8)
        assert (f[~free] < 1e-8).all()


def test_the_logits_gradient_is_the_plan_s(model: FrozenClip) -> None:
    """With the plan held, as in the released code: a linear function of the features."""
    one = FedOTP(model, tuning(), FedOTPConfig())
    draw = torch.Generator().manual_seed(3)
    units = [
        torch.nn.functional.normalize(torch.randn(shape, generator=draw).double(), dim=-1)
        for shape in ((2, 4, 16), (2, 3, 16))
    ]
    patches, texts = units
    s = torch.einsum("bmd,ncd->bcmn", patches, texts)
    held = transport(s, 0.8, 0.1, 1e-3, 100)
    asked = texts.clone().requires_grad_()
    torch.autograd.backward(one.logits({}, Batch(per_image=patches), asked).sum())
    wanted = model.logit_scale * torch.einsum("bcmn,bmd->ncd", held, patches)
    assert asked.grad is not None
    assert torch.allclose(asked.grad, wanted, rtol=1e-10)


def test_a_small_epsilon_gives_finite_plans_that_do_not_depend_on_the_batch() -> None:
    """exp(-(1 - S) / epsilon) is 0 in float32; the plan of the logarithms is not."""
    s = similarities(6, 3, 7, 2).float()
    for epsilon in (0.1, 0.001):
        plan = transport(s, 0.8, epsilon, 1e-3, 100)
        assert torch.isfinite(plan).all()
        assert torch.allclose(plan.sum(dim=(2, 3)), torch.tensor(0.8), atol=1e-4)
        alone = torch.cat([transport(one[None], 0.8, epsilon, 1e-3, 100) for one in s])
        assert torch.equal(alone, plan)
    assert not torch.exp((s - 1) / epsilon).all()


@pytest.mark.parametrize("names", [("global", "local"), ("global",)])
def test_loss_and_logits_against_float64(model: FrozenClip, names: tuple[str, ...]) -> None:
    one = FedOTP(model, tuning(), FedOTPConfig(epsilon=0.2))
    both = Tensors({**drawn(one.initial(1), 3), **drawn(one.private(2), 4)})
    prompts = leaves(Tensors({name: both[name] for name in names}), gradient=True)
    model.model.visual.output_tokens = True
    with torch.no_grad():
        _, tokens = model.model.visual(pixels())
    model.model.visual.output_tokens = False
    seen = wide(tokens) @ wide(model.model.visual.proj)
    seen /= np.linalg.norm(seen, axis=2, keepdims=True)
    classes = model.text.tokens(CLASSES, 3)
    texts = np.stack([wide(model.text.encode(classes, prompts[name])) for name in names])
    logits = np.zeros((5, 3))
    for image in range(5):
        for at in range(3):
            s = seen[image] @ texts[:, at].T
            logits[image, at] = model.logit_scale * (by_hand(s, 0.8, 0.2, 1e-3, 100) * s).sum()
    assert np.allclose(shown_by(one, prompts), logits, atol=1e-3)
    wanted = cross_entropy(logits)
    loss = loss_of(one, prompts)
    assert float(loss.detach()) == pytest.approx(wanted, rel=1e-3)
    torch.autograd.backward(loss)
    for leaf in prompts.values():
        assert leaf.grad is not None
        assert float(leaf.grad.abs().max()) > 0


def test_prompts_start_apart_and_from_their_own_seeds(model: FrozenClip) -> None:
    one = FedOTP(model, tuning(), FedOTPConfig())
    assert one.initial(1) == one.initial(1)
    assert one.private(5) == one.private(5)
    assert one.private(5) != one.private(6)
    assert not np.array_equal(one.initial(1)["global"], one.private(5)["local"])
