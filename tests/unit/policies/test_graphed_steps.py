"""Every policy's steps with recorded passes are its steps without, but for rounding.

A pass with several results adds their gradients in another order.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import pytest
from torch import Tensor

from fednode.clip import model as clip
from fednode.clip.cuda_graphs import GraphedPasses
from tests.unit.clip.test_cuda_graphs import recorder
from tests.unit.policies.steps import TRAINED, arrays_of, batch_of, module_of, trainings
from tests.unit.policies.test_devices import near, on

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
def test_recorded_steps_are_ordinary_steps(name: str, precision: Any, device: str) -> None:
    frozen = on(device, precision)
    wanted = trained(frozen, name, None)
    captures = GraphedPasses(recorder(device))
    found = trained(frozen, name, captures)
    assert (captures._count > 0) == (name not in WITHOUT_TOWERS)
    assert captures.notes == ()
    for ours, theirs in zip(found, wanted, strict=True):
        for key, value in theirs.items():
            assert near(ours[key], value, BOUND[precision]), key
