"""Every kind of tower trains a step with each policy that `fednode check --model` promises for it.

A twin is a tiny random model of a kind. What it does not promise is refused with a sentence.
"""

from __future__ import annotations

from pathlib import Path

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
    "names",
    [{*TRAINED} - ALIKE, pytest.param(ALIKE, marks=pytest.mark.slow)],
    ids=["unlike", "alike"],
)


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
@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_tower_trains_what_the_table_promises_and_refuses_the_rest(
    kind: str, names: set[str]
) -> None:
    frozen = tiny.frozen(eyes.twin(IMAGES[kind]), twins.byte_pairs_of(tiny.TEXT))
    promised = set(policies(clip.describe(kind, frozen)))
    assert promised == PROMISED[kind]
    for name in sorted(names):
        if name in promised:
            step(frozen, name)
            continue
        with pytest.raises(ModelError, match=r"choose|takes no visual prompts"):
            step(frozen, name)


@every_policy
@pytest.mark.parametrize("kind", twins.TEXT)
def test_a_text_tower_trains_what_the_table_promises(
    kind: str, names: set[str], tmp_path: Path
) -> None:
    frozen = tiny.frozen(*twins.twin(kind, tmp_path))
    row = clip.describe(kind, frozen)
    needs_patches = {"fedotp"} if not row["patches"] else set()
    assert set(policies(row)) == set(NEEDS) - needs_patches
    for name in sorted(names - needs_patches):
        step(frozen, name)
