"""Initial values: the distributions of torch's own layers, seeds, and starts from words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fednode.clip.model import FrozenClip
from fednode.errors import ConfigError
from fednode.learn import init
from fednode.learn.coop import CoOp
from fednode.learn.settings import TuningSettings
from tests.unit.learn.jobs import leaves
from tests.unit.policies.tiny import CLASSES, features, shown_by, tuning, wide


def test_draws_have_the_distributions_of_torch_s_own_layers() -> None:
    one, again, other = (init.normal(init.generator(at), (100, 100), 0.02) for at in (5, 5, 6))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.dtype == np.float32
    assert one.std() == pytest.approx(0.02, rel=0.03)
    assert one.mean() == pytest.approx(0.0, abs=0.001)
    torch.manual_seed(1)
    linear, glorot = nn.Linear(64, 200).weight, nn.init.xavier_uniform_(torch.empty(300, 40))
    pairs = (
        (init.uniform(init.generator(1), (200, 64), 64), linear),
        (init.glorot(init.generator(1), (100, 40), 300), glorot),  # a third, drawn as of the whole
    )
    for ours, theirs in pairs:
        assert np.abs(ours).max() == pytest.approx(float(theirs.detach().abs().max()), rel=0.01)
        assert ours.std() == pytest.approx(float(theirs.detach().std()), rel=0.03)


def test_a_context_is_of_words_or_a_normal_draw(mini: FrozenClip) -> None:
    wanted = mini.text.embed_words("a photo of a").float().cpu().numpy()
    settings = TuningSettings(context_length=4, init_words="a photo of a", init_std=0.5)
    assert np.array_equal(init.context(mini, settings, init.generator(1)), wanted)
    with pytest.raises(ConfigError, match=r"'a photo of a' is 4 tokens and .* is 3"):
        init.context(mini, replace(settings, context_length=3), init.generator(1))
    found = init.context(mini, replace(settings, init_words=None), init.generator(3))
    assert np.array_equal(found, init.normal(init.generator(3), (4, mini.text.width), 0.5))


def test_a_sentence_names_the_hand_written_prompt_of_a_model_s_authors(mini: FrozenClip) -> None:
    theirs = replace(mini, template="this is a photo of {}")
    (said,) = init.notes(theirs, TuningSettings())
    assert said.startswith("tuning.template is auto: 'this is a photo of {}', the sentence of")
    assert init.notes(theirs, TuningSettings(template="an x-ray of {}")) == []
    assert init.notes(mini, TuningSettings()) == []
    both = init.notes(theirs, TuningSettings(context_length="auto"))
    assert [one.split(" is auto")[0] for one in both] == [
        "tuning.context_length", "tuning.template"
    ]  # fmt: skip


def test_a_start_from_words_gives_the_hand_written_prompt(model: FrozenClip) -> None:
    one = CoOp(model, tuning(context_length=4, init_words="a photo of a"))
    with torch.no_grad():
        ids = model.tokenizer([f"a photo of a {name}." for name in CLASSES], model.text.length_max)
        texts = model.model.encode_text(ids, normalize=True)
    wanted = model.logit_scale * wide(features()) @ wide(texts).T
    assert np.allclose(shown_by(one, leaves(one.initial(1))), wanted, atol=1e-4)
    assert np.allclose(wide(one.zero_shot(features(), CLASSES)), wanted, atol=1e-4)
