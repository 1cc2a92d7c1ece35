"""Every kind of tower trains a step with each policy that `fednode check --model` promises for it.

A twin is a tiny random model of a kind. What it does not promise is refused with a sentence.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from fednode import registry
from fednode.clip import model as clip
from fednode.commands.model import NEEDS, policies
from fednode.core.types import EMPTY
from fednode.errors import ModelError
from fednode.learn import optimizer
from fednode.learn.prompt_module import Batch
from fednode.learn.prompt_module import JobInputs as Given
from tests.unit.clip import eyes, tiny, twins
from tests.unit.learn.jobs import Training, job
from tests.unit.policies.tiny import CLASSES, LABELS, tuning

IMAGES = {"ViT": tiny.clip, **eyes.PROMPTED, **eyes.OTHERS}
TRAINED = sorted(set(NEEDS) - {"gda"})
PLAIN = {"fedclip", "gda", "zerodfl", "local", "promptfl", "fedtpg", "fedpgp", "diprompt"}
PROMISED = {
    **dict.fromkeys(eyes.OTHERS, PLAIN),
    **{kind: set(NEEDS) - {"feddpt"} for kind in eyes.PROMPTED},
    "ViT": set(NEEDS),
    "SigLIP": set(NEEDS) - {"feddpt", "fedotp"},
}


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
    policy = registry.policy(name)
    known = inspect.signature(policy.config_type).parameters
    config = policy.config_type(**({"domains": ("x", "y")} if "domains" in known else {}))
    one = registry.prompt_module(name)(frozen, tuning(), config)
    arrays = {**one.initial(0), **one.private(0)}
    high, wide = frozen.vision.image_size
    pixels = torch.randn(5, 3, high, wide, generator=torch.Generator().manual_seed(4))
    shown: dict[str, Any] = {"images": pixels}
    if not one.uses_image_encoder:
        shown = {"image_features": frozen.encode_images(pixels).clone(), "norms": torch.ones(5)}
    if one.per_image is not None:
        with torch.no_grad():
            shown["per_image"] = one.per_image.of(pixels)
        assert shown["per_image"].shape == (5, *one.per_image.shape)
    host: Any = {"labels_host": tuple(LABELS.tolist()), "index_host": tuple(range(5))}
    batch = Batch(targets=LABELS, **host, **shown)
    for stage in getattr(getattr(policy, "method", None), "stages", ("prompts",)):
        prompts = {key: torch.tensor(one).requires_grad_() for key, one in arrays.items()}
        local = stage == "aggregators"  # of PLAN, whose reference is each node's prompts
        reference = {f"a/{key}" if local else key: one.detach() for key, one in prompts.items()}
        begun = Given(job(stage, domain="x"), prompts, reference, {}, CLASSES)
        descent = optimizer.build(tuning(), prompts, 0.1, EMPTY)
        training = Training(one, begun, descent)
        losses = training.step(batch)
        assert all(bool(loss.isfinite()) for loss in losses)
        moved = [key for key, leaf in prompts.items() if not same(leaf, arrays[key])]
        assert moved, stage
        assert all(bool(leaf.isfinite().all()) for leaf in prompts.values())
    with torch.no_grad():
        found = one.classifier({k: v.detach() for k, v in prompts.items()}, CLASSES)(batch)
    assert found.shape == (5, len(CLASSES))
    assert bool(found.isfinite().all())


def same(leaf: Tensor, array: Any) -> bool:
    return torch.equal(leaf.detach(), torch.tensor(array))


def test_the_table_knows_every_policy() -> None:
    assert set(NEEDS) == set(registry.names())


@pytest.mark.parametrize("name", TRAINED)
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


@pytest.mark.parametrize("name", TRAINED)
def test_a_text_tower_trains_what_the_table_promises(reader: Any, name: str) -> None:
    _, frozen, row = reader
    needs_patches = {"fedotp"} if not row.patches else set()
    assert set(policies(row)) == set(NEEDS) - needs_patches
    if name in policies(row):
        step(frozen, name)
