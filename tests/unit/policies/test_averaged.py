"""FedCLIP, FedMaPLe and FedTPG against torch's own layers and float64."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fednode.clip.model import FrozenClip
from fednode.clip.settings import PLAIN
from fednode.errors import ConfigError
from fednode.policies.fedclip import FedCLIPAdapter, FedCLIPConfig
from fednode.policies.fedmaple import FedMaPLeConfig, MaPLe
from fednode.policies.fedtpg import FedTPGConfig, PromptGenerator
from tests.unit.learn.jobs import leaves
from tests.unit.policies.tiny import (
    CLASSES,
    LABELS,
    NORMS,
    cross_entropy,
    drawn,
    features,
    loss_of,
    pixels,
    shown_by,
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
        raw = (NORMS[:, None] * features()).double()
        adapted = unit(wide(adapter(raw) * raw))
        texts = unit(wide(model.text.encode(model.text.texts(CLASSES, "a picture of a {}."))))
    wanted = cross_entropy(model.logit_scale * adapted @ texts.T)
    if loss == "contrastive":
        own = np.arange(len(LABELS))
        logits = model.logit_scale * adapted @ texts[LABELS.numpy()].T
        wanted = 0.5 * sum(-np.log(softmax(one)[own, own]).mean() for one in (logits, logits.T))
    assert float(loss_of(one, leaves(tensors))) == pytest.approx(wanted, rel=1e-4)
    shown = shown_by(one, leaves(tensors))
    assert np.allclose(shown, model.logit_scale * adapted @ texts.T, atol=1e-4)


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
    weights = np.asarray(tensors["projection.weight"], dtype=np.float64)
    visual = np.einsum("bmi,boi->bmo", text, weights) + tensors["projection.bias"][:, None]
    images = wide(model.vision.encode(pixels(), torch.tensor(visual).float()).features)
    held = leaves(tensors)
    tokens = model.text.tokens(CLASSES, 3)
    texts = wide(model.text.encode(tokens, held["context"], held["deeper"]))
    logits = model.logit_scale * images @ texts.T
    assert np.allclose(shown_by(one, held), logits, atol=1e-3)
    wanted = cross_entropy(logits)
    assert float(loss_of(one, held)) == pytest.approx(wanted, rel=1e-3)


def test_fedtpg_against_torchs_own_layers(model: FrozenClip) -> None:
    """nn.MultiheadAttention, LayerNorm and Linear, in float64, with our weights put in."""
    one = PromptGenerator(model, tuning(), FedTPGConfig())
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
    wanted = cross_entropy(logits)
    assert float(loss_of(one, leaves(tensors))) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("features", [64, 48])
def test_fedtpg_starts_as_torchs_attention_does(
    features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deviation and range of each array against torch's own layers, over ten draws."""
    width, names = 64, ("query", "key", "value")
    texts = SimpleNamespace(written=lambda names, template: torch.zeros(1, features))
    monkeypatch.setattr("fednode.learn.prompt_module.ClassTexts", lambda backbone: texts)
    model = SimpleNamespace(template=PLAIN, text=SimpleNamespace(width=width))
    one = PromptGenerator(model, tuning(), FedTPGConfig())  # type: ignore[arg-type]
    ours = [leaves(one.initial(seed)) for seed in range(10)]
    torch.manual_seed(1)
    theirs = []
    for _ in range(10):
        layer = nn.MultiheadAttention(width, 4, kdim=features, vdim=features)
        parts: tuple[torch.Tensor, ...] = (
            layer.q_proj_weight,
            layer.k_proj_weight,
            layer.v_proj_weight,
        )
        if features == width:
            parts = layer.in_proj_weight.chunk(3)
        assert layer.in_proj_bias is not None
        found: dict[str, torch.Tensor] = {}
        found |= {f"attend.{name}.weight": x for name, x in zip(names, parts, strict=True)}
        biases = layer.in_proj_bias.chunk(3)
        found |= {f"attend.{name}.bias": x for name, x in zip(names, biases, strict=True)}
        found |= {f"attend.out.{name}": x for name, x in layer.out_proj.named_parameters()}
        theirs.append(found)
    for name in theirs[0]:
        mine, wanted = (torch.stack([each[name].detach() for each in x]) for x in (ours, theirs))
        assert mine.shape == wanted.shape
        assert float(mine.std()) == pytest.approx(float(wanted.std()), rel=0.02)
        assert float(mine.abs().max()) == pytest.approx(float(wanted.abs().max()), rel=0.01)


def test_a_text_width_that_the_heads_do_not_divide_is_a_sentence(
    model: FrozenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(model.text), "width", 30)
    with pytest.raises(ConfigError, match=r"The text width of .* is 30, which the 4 heads"):
        PromptGenerator(model, tuning(), FedTPGConfig()).initial(1)
