"""Fed-DPT (Wei et al.): a text prompt for each domain, weighted by an image's attention.

Each domain i has a text prompt t_i [m, text width] and a visual token v_i [vision width].

    w_i = softmax_i(<q_cls, k_i> / tau_d)            (5)    in the image tower's last block
    f_T(x, c) = sum_i w_i(x) f_T^i(c)                (6)    f_T^i of domain i's text prompt
    L = -cos(f_V, f_T(x, y))                         (9)    equation 7 lacks the sign

Others' text prompts are constants within a step, and move between steps, towards those received:

    t <- alpha t + (1 - alpha) t_received            (8)

Their positions are carried from round to round. The owners of a text prompt are the nodes of its
domain. All nodes hold what its owners sent last, or their mean if they are several; while no owner
is live, the prompt keeps its value. Visual tokens are averaged over all nodes, or have owners as
well (`visual: split`). docs/divergence.md compares with the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fednode.core.merge.robust import combine
from fednode.core.rounds.engine import Method
from fednode.core.rounds.method import Contribution, MethodState, MomentSettings, Round
from fednode.core.settings import RoundSettings, bounded, positive
from fednode.core.types import EMPTY, Array, Job, Json, Tensors
from fednode.errors import ModelError
from fednode.lazy import F, Tensor, torch
from fednode.learn import init
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule
from fednode.learn.settings import TuningSettings
from fednode.policies import domains

if TYPE_CHECKING:
    from fednode.clip.model import FrozenClip
    from fednode.clip.vision import VisionOutput

TEXT = "text."
VISUAL = "visual."
SHARED = "shared"
"""The text prompt if all domains have one prompt together."""
MOVED = "moved/"
"""Prefix, in the carry, of others' arrays as the moving average left them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedDPTConfig(MomentSettings):
    """Fed-DPT (Wei et al.): a text prompt for each domain.

    docs/divergence.md compares these settings with the paper.
    """

    domains: tuple[str, ...] = ()
    """All domains of the mesh, in the same order on all nodes. Each node names its own domain in
    data.domain."""
    components: Literal["full", "visual", "text", "agnostic"] = "full"
    """What is tuned (table 5). full: all. visual or text: one kind of prompt. agnostic: both
    kinds, with one text prompt for all domains and no weighting between domains."""
    text: Literal["ema", "replace", "train_all"] = "ema"
    """How the text prompts of other domains arrive (table 6a). ema: by a moving average. replace:
    at once. train_all: every node trains all of them."""
    alpha: float = 0.99
    """Decay of that moving average at each step (equation 8); nearer 1 is smoother and older."""
    visual: Literal["average", "split_ema", "split"] = "average"
    """Visual tokens (table 6b). average: every node trains all, and they are averaged. split_ema
    or split: each domain's nodes train its token, and the others receive it by a moving average,
    or at once."""
    temperature: float = 0.1
    """tau_d of equation 5. A lower value attends to fewer domains."""
    score: Literal["scaled", "cosine", "raw"] = "scaled"
    """The product of query and key in equation 5. scaled: divided by the root of the head width
    and averaged over heads. cosine: the cosine. raw: the plain product over all heads."""
    loss: Literal["cosine", "ce"] = "cosine"
    """cosine: equation 9. ce: cross-entropy over the node's classes (equation 10)."""
    optimizer: Literal["keep", "reset"] = "keep"

    def __post_init__(self) -> None:
        MomentSettings.__post_init__(self)
        domains.check(self.domains)
        bounded("policy.alpha", self.alpha, 0, 1)
        positive("policy.temperature", self.temperature)
        if self.wire_dtype == "int8":
            raise ValueError("policy.wire_dtype is int8; Fed-DPT's prompts take float16 or more.")

    @property
    def text_names(self) -> tuple[str, ...]:
        """Names of the text prompts, in the order of the domains."""
        if self.components == "visual":
            return ()
        owners = self.domains if self.components == "full" else (SHARED,)
        return tuple(TEXT + owner for owner in owners)

    @property
    def visual_names(self) -> tuple[str, ...]:
        """Names of the visual tokens, in the order of the domains."""
        return () if self.components == "text" else tuple(VISUAL + owner for owner in self.domains)

    def trained(self, domain: str) -> frozenset[str]:
        """Return the names of the arrays that a node of a domain trains and sends to others."""
        text, visual = frozenset(self.text_names), frozenset(self.visual_names)
        if self.components == "full" and self.text != "train_all":
            text &= {TEXT + domain}
        if self.visual != "average":
            visual &= {VISUAL + domain}
        return text | visual


# What is tuned ------------------------------------------------------------------------------------


class FedDPTPrompts(PromptModule):
    """Text prompts and visual tokens; `inputs.state` holds the arrays that others train."""

    config: FedDPTConfig

    def __init__(self, clip: FrozenClip, settings: TuningSettings, config: Any = None) -> None:
        """Raise ModelError if the image tower gives no query of a class token, for equation 5."""
        super().__init__(clip, settings, config)
        self.uses_image_encoder = self.config.components != "text"
        if (
            self.config.components == "full"
            and clip.vision.promptable
            and not clip.vision.has_class_token
        ):
            raise ModelError(
                f"{clip.label} gives no attention of a class token, which weighs Fed-DPT's "
                "domains: set policy.components to text or visual, or choose a model such as "
                "ViT-B-16."
            )

    def initial(self, seed: int) -> Tensors:
        """Return arrays drawn one by one in the order of the domains."""
        draw = init.generator(seed)
        arrays: dict[str, Array] = {
            name: init.context(self.clip, self.settings, draw) for name in self.config.text_names
        }
        for name in self.config.visual_names:
            arrays[name] = init.normal(draw, (self.clip.vision.width,), self.settings.init_std)
        return Tensors(arrays)

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Tensor:
        """Return f_T^i, [n, classes, D], of n text prompts, in the order of the domains.

        Prompts without a gradient are encoded separately, which costs less.
        """
        if not self.config.text_names:
            return self.handwritten(classes)[None]
        features: dict[str, Tensor] = {}
        for gradient in (True, False):
            names = [
                name for name in self.config.text_names if params[name].requires_grad == gradient
            ]
            if names:
                contexts = torch.stack([params[name] for name in names])
                with torch.set_grad_enabled(gradient and torch.is_grad_enabled()):
                    encoded = self.encode(contexts, classes)
                features.update(zip(names, encoded, strict=True))
        return torch.stack([features[name] for name in self.config.text_names])

    def logits(self, params: Mapping[str, Tensor], batch: Batch, texts: Tensor) -> Tensor:
        """Return s * cos(f_V, f_T(x, c)), with equation 6's sum as a unit vector."""
        features, weights = self.see(params, batch)
        mixed = F.normalize(torch.einsum("bn,ncd->bcd", weights, texts), dim=2)
        cosines = torch.einsum("bd,bcd->bc", features, mixed)
        return self.clip.add_logit_bias(self.clip.logit_scale * cosines)

    def see(self, params: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return image features [B, D] and the domains' weights [B, n], or ones [B, 1]."""
        if not self.uses_image_encoder:
            return batch.image_features, torch.ones_like(batch.image_features[:, :1])
        tokens = torch.stack([params[name] for name in self.config.visual_names])[None]
        seen = self.clip.vision.encode(batch.images, tokens)
        if self.config.components != "full":
            return seen.features, torch.ones_like(seen.features[:, :1])
        return seen.features, self.weights(seen)

    def weights(self, seen: VisionOutput) -> Tensor:
        """Return the weights [B, n] of equation 5, scaled as the setting `score` says."""
        query, keys = seen.query.float(), seen.keys.float()
        if self.config.score == "cosine":
            query = F.normalize(query.flatten(1), dim=1)[:, None]
            keys = F.normalize(keys.transpose(1, 2).flatten(2), dim=2)[:, None]
        scores = torch.einsum("bhd,bhnd->bn", query, keys.expand(len(query), -1, -1, -1))
        if self.config.score == "scaled":
            scores = scores / (query.shape[1] * query.shape[2] ** 0.5)
        return (scores / self.config.temperature).softmax(dim=1)

    def start(self, inputs: JobInputs) -> dict[str, Tensor]:
        """Return others' arrays: as the last job left them, if they move, or as received."""
        return {
            name: inputs.carry.get(MOVED + name, array).clone() if self._moves(name) else array
            for name, array in inputs.reference.items()
        }

    def loss(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return the loss of equation 9, or the cross-entropy over the node's classes."""
        params = {**inputs.state, **inputs.params}
        if self.config.loss == "ce":
            texts = self.text_features(params, inputs.classes)
            return F.cross_entropy(self.logits(params, batch, texts), batch.targets)
        from fednode.clip.device import to_device

        features, weights = self.see(params, batch)
        # Equation 9 needs the true classes alone: texts of other classes need not be encoded.
        labels = batch.labels_host or tuple(batch.targets.tolist())
        present = sorted(set(labels))
        texts = self.text_features(params, tuple(inputs.classes[at] for at in present))
        place = torch.tensor([present.index(label) for label in labels])
        own = texts[:, to_device(place, features.device)]
        mixed = F.normalize(torch.einsum("bn,nbd->bd", weights, own), dim=1)
        return -(features * mixed).sum(dim=1).mean()

    def after_step(self, inputs: JobInputs) -> None:
        """Move others' arrays towards the received arrays (equation 8)."""
        with torch.no_grad():
            for name in filter(self._moves, inputs.state):
                inputs.state[name].lerp_(inputs.reference[name], 1.0 - self.config.alpha)

    def carry(self, inputs: JobInputs) -> Mapping[str, Tensor]:
        """Return others' arrays as the moving average left them."""
        return {MOVED + name: array for name, array in inputs.state.items() if self._moves(name)}

    def _moves(self, name: str) -> bool:
        text, visual = self.config.text == "ema", self.config.visual == "split_ema"
        return (name.startswith(TEXT) and text) or (name.startswith(VISUAL) and visual)


# The exchange -------------------------------------------------------------------------------------


class FedDPT(Method):
    """Fed-DPT's jobs and merges in mesh-wide rounds; see the file's header."""

    name = "feddpt"
    config_type = FedDPTConfig
    prompts = FedDPTPrompts
    tuning: ClassVar[Mapping[str, Json]] = {
        "context_length": 16,
        "optimizer": "adamw",
        "lr": 5e-4,
        "weight_decay": 0.01,
        "batch_size": 32,
        "schedule": "constant",
    }

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Refuse a node whose domain is not one of the mesh's."""
        fault = domains.settings_fault(config.domains, domain)
        return fault or super().settings_fault(config, rounds, domain)

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of one text prompt and all visual tokens up, and of all arrays down."""
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        text = max((size for name, size in sizes.items() if name.startswith(TEXT)), default=0)
        visual = sum(size for name, size in sizes.items() if name.startswith(VISUAL))
        return rounds * clients * (text + visual + sum(sizes.values())) * 4

    @property
    def drifts(self) -> bool:
        """Tell whether nodes that differ may stay different.

        If nodes are drawn, a prompt keeps its value in rounds in which none of its owners is drawn.
        """
        return super().drifts or self.config.participants > 0

    def job(self, now: Round) -> Job:
        """Train the node's own arrays; the others' arrays are the reference."""
        mine = self.config.trained(self.context.domain)
        own = {name: array for name, array in now.draft.shared.items() if name in mine}
        rest = {name: array for name, array in now.draft.shared.items() if name not in mine}
        return self.training(now, Tensors(own), Tensors(rest))

    def complete(self, names: frozenset[str], expected: frozenset[str]) -> bool:
        """Accept the full set of arrays that the nodes of some domain train, and nothing else."""
        return any(names == self.config.trained(domain) for domain in self.config.domains)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return each array's unweighted mean over its senders (Algorithm 1, line 16)."""
        tensors, before = [contribution.tensors for contribution in given], now.draft.shared
        weights, agrees = [1.0] * len(tensors), now.base_agrees
        shared = combine(self.config.merge, tensors, weights, before, base_agrees=agrees)
        keep = self.config.optimizer == "keep"
        return replace(now.draft, shared=shared, carry=now.draft.carry if keep else EMPTY)
