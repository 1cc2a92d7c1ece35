"""FedCLIP against float64 and its paper's count of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fednode.clip.model import FrozenClip
from fednode.learn.prompt_module import Batch
from fednode.policies.fedclip import FedCLIPAdapter, FedCLIPConfig
from tests.unit.learn.jobs import batch, first_loss, given, leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    count_published,
    drawn,
    features,
    pixels,
    softmax,
    tuning,
    unit,
    wide,
)


@pytest.mark.parametrize("loss", ["contrastive", "ce"])
def test_fedclip_against_torchs_own_layers(model: FrozenClip, loss: str) -> None:
    """The released code's order in float64: encode_image, adapter, product, unit length."""
    one = FedCLIPAdapter(model, tuning(template="a picture of a {}."), FedCLIPConfig(loss=loss))  # type: ignore[arg-type]
    tensors = drawn(one.initial(1), 3, 0.5)
    w = {name: torch.tensor(np.asarray(x, dtype=np.float64)) for name, x in tensors.items()}
    width = len(w["first.bias"])
    adapter = nn.Sequential(
        nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Softmax(dim=1)
    ).double()
    adapter.load_state_dict(
        {f"{at}.{part}": w[f"{name}.{part}"] for at, name in ((0, "first"), (2, "second"))
         for part in ("weight", "bias")}
    )  # fmt: skip
    with torch.no_grad():
        seen = model.model.encode_image(pixels()).double()
        adapted = adapter(seen) * seen
        adapted = unit(wide(adapted))
        texts = unit(wide(model.text.encode(model.text.texts(CLASSES, "a picture of a {}."))))
    own = np.arange(len(LABELS))
    if loss == "ce":
        p = softmax(model.logit_scale * adapted @ texts.T)
        wanted = -np.log(p[own, LABELS.numpy()]).mean()
    else:
        logits = model.logit_scale * adapted @ texts[LABELS.numpy()].T
        wanted = 0.5 * sum(-np.log(softmax(one)[own, own]).mean() for one in (logits, logits.T))
    lengths = seen.norm(dim=1).float()
    assert float((lengths - 1.0).abs().min()) > 0.1, "unit features would give the same"
    images: dict[str, Any] = {
        "image_features": (seen / seen.norm(dim=1, keepdim=True)).float(),
        "norms": lengths,
    }
    found = first_loss(one, given(leaves(tensors), CLASSES), batch(LABELS, **images))
    assert float(found) == pytest.approx(wanted, rel=1e-4)
    shown = one.classifier(leaves(tensors), CLASSES)(Batch(**images))
    assert np.allclose(wide(shown), model.logit_scale * adapted @ texts.T, atol=1e-4)


def test_an_untrained_adapter_is_nearly_zero_shot(model: FrozenClip) -> None:
    one = FedCLIPAdapter(model, tuning(), FedCLIPConfig())
    start = {name: 0.0 * value for name, value in leaves(one.initial(1)).items()}
    norms = torch.linspace(3.0, 12.0, len(LABELS))
    shown = one.classifier(start, CLASSES)(Batch(image_features=features(), norms=norms))
    assert torch.allclose(shown, one.zero_shot(features(), CLASSES), atol=1e-4)


def test_it_has_as_many_parameters_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_published(FedCLIPAdapter, FedCLIPConfig(), 4, monkeypatch) == 525_312
