"""Every kind of tower trains a step with each policy that `fednode check --model` promises for it.

A twin is a tiny random model of a kind. What it does not promise is refused with a sentence.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from fednode import registry
from fednode.clip import model as clip
from fednode.commands.model import NEEDS, policies
from fednode.errors import ModelError
from tests.unit.clip import eyes, tiny, twins
from tests.unit.policies.steps import TRAINED, arrays_of, batch_of, logits_of, module_of, trainings
from tests.unit.policies.tiny import CLASSES

IMAGES = {"ViT": tiny.clip, **eyes.PROMPTED, **eyes.OTHERS}
PLAIN = {"fedclip", "gda", "zerodfl", "local", "promptfl", "fedtpg", "fedpgp", "diprompt"}
PROMISED = {
    **dict.fromkeys(eyes.OTHERS, PLAIN),
    **{kind: set(NEEDS) - {"feddpt"} for kind in eyes.PROMPTED},
    "ViT": set(NEEDS),
    "SigLIP": set(NEEDS) - {"feddpt", "fedotp"},
}
ALIKE = {"local", "zerodfl", "fedtpg", "fedpgp", "diprompt"}
"""Text prompts alone, as promptfl: what they need of a tower is the same."""
every_policy = pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if one in ALIKE else ()) for one in TRAINED],
)


@pytest.fixture(scope="module", params=IMAGES)
def eye(request: pytest.FixtureRequest) -> Any:
    """Return a kind of image tower, a model with it and a plain text tower, and its row."""
    frozen = tiny.frozen(eyes.twin(IMAGES[request.param]), twins.byte_pairs_of(tiny.TEXT))
    return request.param, frozen, clip.describe(request.param, frozen)


@pytest.fixture(scope="module", params=twins.TEXT)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a kind of text tower, a model with it and a plain ViT, and its row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about their own calls
        model, tokenizer = twins.twin(request.param, tmp_path_factory.mktemp("tokenizer"))
    frozen = tiny.frozen(model, tokenizer)
    return request.param, frozen, clip.describe(request.param, frozen)


def step(frozen: clip.FrozenClip, name: str) -> None:
    """Train a step of each stage of a policy, and classify; every array gets finite numbers."""
    module = module_of(frozen, name)
    arrays = arrays_of(module)
    draw = torch.Generator().manual_seed(4)
    batch = batch_of(module, 5, torch.randn(5, 3, *frozen.vision.image_size, generator=draw))
    if module.per_image is not None:
        assert batch.per_image.shape == (5, *module.per_image.shape)
    for training in trainings(name, module, arrays):
        assert all(bool(loss.isfinite()) for loss in training.step(batch))
        leaves = {key: leaf.detach() for key, leaf in training.prompts.items()}
        assert any(not torch.equal(leaf, torch.tensor(arrays[key])) for key, leaf in leaves.items())
        assert all(bool(leaf.isfinite().all()) for leaf in leaves.values())
    found = logits_of(training, batch)
    assert found.shape == (5, len(CLASSES))
    assert bool(found.isfinite().all())


def test_the_table_knows_every_policy() -> None:
    assert set(NEEDS) == set(registry.names())


@every_policy
def test_an_image_tower_trains_what_the_table_promises_and_refuses_the_rest(
    eye: Any, name: str
) -> None:
    kind, frozen, row = eye
    assert set(policies(row)) == PROMISED[kind]
    if name in policies(row):
        step(frozen, name)
        return
    with pytest.raises(ModelError, match=r"choose|takes no visual prompts"):
        step(frozen, name)


@every_policy
def test_a_text_tower_trains_what_the_table_promises(reader: Any, name: str) -> None:
    _, frozen, row = reader
    needs_patches = {"fedotp"} if not row["patches"] else set()
    assert set(policies(row)) == set(NEEDS) - needs_patches
    if name in policies(row):
        step(frozen, name)
