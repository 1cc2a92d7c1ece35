"""Steps of every policy: its settings, a training of each of its stages, and a batch for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.core.types import EMPTY, Array
from fednode.learn import optimizer
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule
from tests.unit.learn.jobs import Training, job
from tests.unit.policies.tiny import CLASSES, features, pixels, tuning

TRAINED: Final = sorted(set(registry.names()) - {"gda"})
"""gda computes sums in one pass over the features and has no step."""

LABELS: Final = (0, 2, 1, 1, 0)


def config_of(name: str) -> Any:
    kind = registry.policy(name).config_type
    return kind(**({"domains": ("x", "y")} if "domains" in kind.__dataclass_fields__ else {}))


def module_of(frozen: FrozenClip, name: str, **set_: Any) -> PromptModule:
    """Return what a policy tunes. set_: settings of tuning."""
    made: PromptModule = registry.prompt_module(name)(frozen, tuning(**set_), config_of(name))
    return made


def arrays_of(module: PromptModule) -> dict[str, Array]:
    return {**module.initial(0), **module.private(0)}


def trainings(
    name: str, module: PromptModule, arrays: dict[str, Array], rate: float = 0.1
) -> Iterator[Training]:
    """Yield a training of each stage of a policy, which begins from the arrays."""
    for stage in getattr(registry.policy(name), "stages", ("prompts",)):
        prompts = {
            key: torch.tensor(np.array(value), device=module.clip.device).requires_grad_()
            for key, value in arrays.items()
        }
        local = stage == "aggregators"  # of PLAN, whose reference is each node's prompts
        reference = {f"a/{key}" if local else key: leaf.detach() for key, leaf in prompts.items()}
        inputs = JobInputs(job(stage, domain="x"), prompts, reference, {}, CLASSES)
        yield Training(module, inputs, optimizer.build(module.settings, prompts, rate, EMPTY))


def batch_of(module: PromptModule, count: int = 5, images: Any = None) -> Batch:
    """Return what a module reads of so many images. images: their pixels; None: any."""
    device = module.clip.device
    shown: dict[str, Any] = {"images": (pixels(count) if images is None else images).to(device)}
    if not module.uses_image_encoder:
        encoded = features(count)
        if images is not None:
            encoded = F.normalize(module.clip.encode_raw(images), dim=-1).clone()
        shown = {"image_features": encoded.to(device), "norms": torch.ones(count, device=device)}
    if module.per_image is not None:
        drawn = torch.rand(
            count, *module.per_image.shape, generator=torch.Generator().manual_seed(6)
        )
        per_image = drawn if images is None else module.per_image.of(images)
        shown["per_image"] = per_image.detach().to(device)
    host: Any = {"labels_host": LABELS[:count], "index_host": tuple(range(count))}
    return Batch(targets=torch.tensor(LABELS[:count], device=device), **host, **shown)


def logits_of(training: Training, batch: Batch) -> torch.Tensor:
    """Return the logits of the arrays as they are now."""
    with torch.no_grad():
        now = {key: leaf.detach() for key, leaf in training.prompts.items()}
        return training.module.classifier(now, CLASSES)(batch)
