"""FedMaPLe against float64 and its paper's counts of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.learn.prompt_module import Batch
from fednode.policies.fedmaple import FedMaPLeConfig, MaPLe
from tests.unit.learn.jobs import batch, first_loss, given, leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    count_published,
    drawn,
    pixels,
    softmax,
    tuning,
    wide,
)


def test_fedmaple_couples_the_towers(model: FrozenClip) -> None:
    one = MaPLe(model, tuning(), FedMaPLeConfig(depth=9))
    tensors = drawn(one.initial(1), 3)
    assert tensors.shapes == {
        "context": (3, 32),
        "deeper": (1, 3, 32),  # the tiny towers have two blocks
        "projection.weight": (2, 32, 32),
        "projection.bias": (2, 32),
    }
    text = [tensors["context"], *tensors["deeper"]]
    visual = np.stack(
        [
            x.astype(np.float64) @ w.T.astype(np.float64) + b
            for x, w, b in zip(
                text, tensors["projection.weight"], tensors["projection.bias"], strict=True
            )
        ]
    )
    images = wide(model.vision.encode(pixels(), torch.tensor(visual).float()).features)
    held = leaves(tensors)
    tokens = model.text.tokens(CLASSES, 3)
    texts = wide(model.text.encode(tokens, held["context"], held["deeper"]))
    logits = model.logit_scale * images @ texts.T
    shown = one.classifier(held, CLASSES)(Batch(images=pixels()))
    assert np.allclose(wide(shown), logits, atol=1e-3)
    wanted = -np.log(softmax(logits)[np.arange(5), LABELS.numpy()]).mean()
    loss = first_loss(one, given(held, CLASSES), batch(LABELS, images=pixels()))
    assert float(loss) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("config", "length", "count"),
    [
        (FedMaPLeConfig(depth=9), 2, 3_555_072),
        (FedMaPLeConfig(depth=12), 8, 4_776_960),
    ],
)
def test_it_has_as_many_parameters_as_published(
    config: FedMaPLeConfig, length: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_published(MaPLe, config, length, monkeypatch) == count
