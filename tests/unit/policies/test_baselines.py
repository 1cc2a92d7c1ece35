"""FedCLIP, FedTPG and FedMaPLe against float64, and their papers' counts of parameters."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fednode.clip.backbone import Backbone
from fednode.errors import ConfigError
from fednode.learn.objective import Batch
from fednode.policies.fedclip.config import FedCLIPConfig
from fednode.policies.fedclip.objective import Objective as FedCLIP
from fednode.policies.fedmaple.config import FedMaPLeConfig
from fednode.policies.fedmaple.objective import Objective as FedMaPLe
from fednode.policies.fedtpg.config import FedTPGConfig
from fednode.policies.fedtpg.objective import Objective as FedTPG
from tests.unit.learn.jobs import batch, given, leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    drawn,
    features,
    pixels,
    softmax,
    tuning,
    unit,
    wide,
)


@pytest.mark.parametrize("loss", ["contrastive", "ce"])
def test_fedclip_against_torchs_own_layers(model: Backbone, loss: str) -> None:
    """The released code's order in float64: encode_image, adapter, product, unit length."""
    one = FedCLIP(model, tuning(template="a picture of a {}."), FedCLIPConfig(loss=loss))  # type: ignore[arg-type]
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
    images = {"features": (seen / seen.norm(dim=1, keepdim=True)).float(), "norms": lengths}
    found = one.begin(given(leaves(tensors), CLASSES)).loss(batch(LABELS, **images))
    assert float(found) == pytest.approx(wanted, rel=1e-4)
    shown = one.classifier(leaves(tensors), CLASSES)(Batch(**images))
    assert np.allclose(wide(shown), model.logit_scale * adapted @ texts.T, atol=1e-4)


def test_an_untrained_adapter_is_nearly_zero_shot(model: Backbone) -> None:
    one = FedCLIP(model, tuning(), FedCLIPConfig())
    start = {name: 0.0 * value for name, value in leaves(one.initial(1)).items()}
    norms = torch.linspace(3.0, 12.0, len(LABELS))
    shown = one.classifier(start, CLASSES)(Batch(features=features(), norms=norms))
    assert torch.allclose(shown, one.zero_shot(features(), CLASSES), atol=1e-4)


def test_fedtpg_against_torchs_own_layers(model: Backbone) -> None:
    """nn.MultiheadAttention, LayerNorm and Linear, in float64, with our weights put in."""
    one = FedTPG(model, tuning(), FedTPGConfig(heads=4))
    tensors = drawn(one.initial(1), 3, 0.2)
    w = {name: torch.tensor(np.asarray(x, dtype=np.float64)) for name, x in tensors.items()}
    width, names = 32, 16
    attention = nn.MultiheadAttention(width, 4, kdim=names, vdim=names, batch_first=True).double()
    assert attention.in_proj_bias is not None
    with torch.no_grad():
        for part, target in (("query", "q"), ("key", "k"), ("value", "v")):
            getattr(attention, f"{target}_proj_weight").copy_(w[f"attend.{part}.weight"])
        attention.in_proj_bias.copy_(
            torch.cat([w[f"attend.{part}.bias"] for part in ("query", "key", "value")])
        )
        attention.out_proj.weight.copy_(w["attend.out.weight"])
        attention.out_proj.bias.copy_(w["attend.out.bias"])

        def norm(name: str, x: torch.Tensor) -> torch.Tensor:
            layer = nn.LayerNorm(x.shape[1]).double()
            layer.weight.copy_(w[f"norm.{name}.weight"])
            layer.bias.copy_(w[f"norm.{name}.bias"])
            found: torch.Tensor = layer(x)
            return found

        named = torch.tensor(wide(one.texts.written(CLASSES, "{}")))
        keys = norm("names", named)[None]
        x = attention(norm("query", w["queries"])[None], keys, keys)[0][0]
        hidden = norm("ffn", x) @ w["ffn.in.weight"].T + w["ffn.in.bias"]
        value, gate = hidden[:, : 4 * width], hidden[:, 4 * width :]
        x = x + (value * nn.functional.gelu(gate)) @ w["ffn.out.weight"].T + w["ffn.out.bias"]
    found = one.context(leaves(tensors), CLASSES)
    assert np.allclose(wide(found), x.numpy(), atol=1e-5)
    others = one.context(leaves(tensors), ("dog", "saw"))
    assert (others - found).abs().max() > 1e-2, "the prompt depends on the class names"
    tokens = model.text.tokens(CLASSES, 3)
    logits = model.logit_scale * wide(features()) @ wide(model.text.encode(tokens, found)).T
    wanted = -np.log(softmax(logits)[np.arange(5), LABELS.numpy()]).mean()
    loss = one.begin(given(leaves(tensors), CLASSES)).loss(batch(LABELS, features=features()))
    assert float(loss) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("features", [64, 48])
def test_fedtpg_starts_as_torchs_attention_does(
    features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deviation and range of each array against torch's own layers, over ten draws."""
    width = 64
    monkeypatch.setattr("fednode.learn.texts.ClassTexts.__init__", lambda self, backbone: None)
    monkeypatch.setattr(
        "fednode.learn.texts.ClassTexts.written",
        lambda self, names, template: torch.zeros(1, features),
    )
    model = SimpleNamespace(text=SimpleNamespace(width=width))
    one = FedTPG(model, tuning(), FedTPGConfig())  # type: ignore[arg-type]
    ours = [leaves(one.initial(seed)) for seed in range(10)]
    torch.manual_seed(1)
    theirs = []
    for _ in range(10):
        layer = nn.MultiheadAttention(width, 4, kdim=features, vdim=features)
        if features == width:
            parts = tuple(layer.in_proj_weight.chunk(3))
        else:
            parts = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        assert layer.in_proj_bias is not None
        drawn_now = dict(zip(("query", "key", "value"), parts, strict=True))
        theirs.append({f"attend.{name}.weight": x for name, x in drawn_now.items()})
        biases = zip(("query", "key", "value"), layer.in_proj_bias.chunk(3), strict=True)
        theirs[-1] |= {f"attend.{name}.bias": x for name, x in biases}
        theirs[-1] |= {"attend.out.weight": layer.out_proj.weight}
        theirs[-1] |= {"attend.out.bias": layer.out_proj.bias}
    for name in theirs[0]:
        mine, wanted = (torch.stack([each[name].detach() for each in x]) for x in (ours, theirs))
        assert mine.shape == wanted.shape
        assert float(mine.std()) == pytest.approx(float(wanted.std()), rel=0.02)
        assert float(mine.abs().max()) == pytest.approx(float(wanted.abs().max()), rel=0.01)


def test_heads_that_do_not_fit_are_a_sentence(model: Backbone) -> None:
    with pytest.raises(ConfigError, match=r"policy.heads is 5, .* text width 32"):
        FedTPG(model, tuning(), FedTPGConfig(heads=5)).initial(1)


def test_fedmaple_couples_the_towers(model: Backbone) -> None:
    one = FedMaPLe(model, tuning(), FedMaPLeConfig(depth=9))
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
    shown = one.classifier(held, CLASSES)(Batch(pixels=pixels()))
    assert np.allclose(wide(shown), logits, atol=1e-3)
    wanted = -np.log(softmax(logits)[np.arange(5), LABELS.numpy()]).mean()
    loss = one.begin(given(held, CLASSES)).loss(batch(LABELS, pixels=pixels()))
    assert float(loss) == pytest.approx(wanted, rel=1e-3)


class Sizes:
    """What an objective asks of a ViT-B/16 to say how its arrays start."""

    class text:
        width, layers = 512, 12

        @staticmethod
        def embed_words(words: str) -> torch.Tensor:
            return torch.zeros(len(words.split()), 512)

    class vision:
        width, layers = 768, 12


@pytest.mark.parametrize(
    ("kind", "config", "length", "count"),
    [
        (FedMaPLe, FedMaPLeConfig(depth=9), 2, 3_555_072),
        (FedMaPLe, FedMaPLeConfig(depth=12), 8, 4_776_960),
        (FedTPG, FedTPGConfig(), 4, 4_206_080),
        (FedCLIP, FedCLIPConfig(), 4, 525_312),
    ],
)
def test_parameters_are_as_many_as_published(
    kind: Any, config: Any, length: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ViT-B/16; the figures are those of METHODS section 5."""
    monkeypatch.setattr("fednode.learn.texts.ClassTexts.__init__", lambda self, backbone: None)
    monkeypatch.setattr(
        "fednode.learn.texts.ClassTexts.written", lambda self, names, template: torch.zeros(1, 512)
    )
    one = kind(Sizes, tuning(context_length=length, init_words=None), config)
    assert sum(math.prod(shape) for shape in one.initial(1).shapes.values()) == count
