"""The loss and the predictions against open_clip's own modules and closed forms in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fednode.clip.model import FrozenClip
from fednode.learn.coop import CONTEXT, CoOp
from tests.unit.learn.jobs import leaves
from tests.unit.policies.reference import Plain
from tests.unit.policies.tiny import (
    CLASSES,
    features,
    loss_of,
    shown_by,
    tuning,
    wide,
)


def module(model: FrozenClip, **settings: object) -> CoOp:
    return CoOp(model, tuning(**settings))


def test_a_start_from_words_gives_the_hand_written_prompt(model: FrozenClip) -> None:
    one = module(model, context_length=4, init_words="a photo of a")
    with torch.no_grad():
        ids = model.tokenizer([f"a photo of a {name}." for name in CLASSES], model.text.length_max)
        texts = model.model.encode_text(ids, normalize=True)
    wanted = model.logit_scale * wide(features()) @ wide(texts).T
    assert np.allclose(shown_by(one, leaves(one.initial(1))), wanted, atol=1e-4)
    assert np.allclose(wide(one.zero_shot(features(), CLASSES)), wanted, atol=1e-4)


def test_knowledge_weight_adds_the_distance_to_the_hand_written_text(model: FrozenClip) -> None:
    plain, pulled = module(model), module(model, knowledge_weight=8.0)
    prompts = leaves(plain.initial(3))
    written = wide(plain.handwritten(CLASSES))
    distance = 8.0 * (1.0 - (written * wide(Plain(model).texts(prompts[CONTEXT]))).sum(axis=1))
    added = loss_of(pulled, prompts) - loss_of(plain, prompts)
    assert float(added) == pytest.approx(distance.mean(), rel=1e-4)
