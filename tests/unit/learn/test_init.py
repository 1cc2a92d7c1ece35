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
from fednode.learn.settings import TuningSettings


def test_equal_seeds_draw_equal_numbers_in_float32() -> None:
    one, again, other = (init.normal(init.generator(seed), (3, 4), 0.02) for seed in (5, 5, 6))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.dtype == np.float32


def test_a_normal_draw_has_its_deviation() -> None:
    drawn = init.normal(init.generator(1), (100, 100), 0.02)
    assert drawn.std() == pytest.approx(0.02, rel=0.03)
    assert drawn.mean() == pytest.approx(0.0, abs=0.001)


def test_a_uniform_draw_is_that_of_torch_s_linear_layer() -> None:
    torch.manual_seed(1)
    theirs = nn.Linear(64, 200).weight.detach()
    ours = init.uniform(init.generator(1), (200, 64), 64)
    assert np.abs(ours).max() == pytest.approx(float(theirs.abs().max()), rel=0.01)
    assert ours.std() == pytest.approx(float(theirs.std()), rel=0.03)


def test_a_glorot_draw_is_torch_s_xavier_uniform() -> None:
    torch.manual_seed(1)
    theirs = nn.init.xavier_uniform_(torch.empty(300, 40))
    whole = init.glorot(init.generator(1), (100, 40), 300)  # one of three that are drawn as one
    assert np.abs(whole).max() == pytest.approx(float(theirs.abs().max()), rel=0.01)
    assert whole.std() == pytest.approx(float(theirs.std()), rel=0.03)


def test_words_are_their_embeddings_and_as_many_as_the_context(mini: FrozenClip) -> None:
    wanted = mini.text.embed_words("a photo of a").float().cpu().numpy()
    settings = TuningSettings(context_length=4, init_words="a photo of a")
    found = init.context(mini, settings, init.generator(1))
    assert np.array_equal(found, wanted)
    with pytest.raises(ConfigError, match=r"'a photo of a' is 4 tokens and .* is 3"):
        init.context(mini, replace(settings, context_length=3), init.generator(1))


def test_a_context_without_words_is_a_normal_draw(mini: FrozenClip) -> None:
    settings = TuningSettings(context_length=4, init_words=None, init_std=0.5)
    found = init.context(mini, settings, init.generator(3))
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
