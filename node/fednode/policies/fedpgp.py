"""FedPGP (Cui et al., ICML 2024): a global prompt, and a private change of it of low rank.

    P     = G + U V                     G [m, width] is averaged; U [m, b], V [b, width] stay
    L     = CE(s cos(f, g(P))) + mu L_con
    L_con = mean_c log(1 + exp((cos(g(G), g(P)) - cos(a, g(G))) / t))

a is the hand-written text of class c. L_con is -log of the softmax over two cosines: the anchor is
the positive, the node's own text the negative. It does not depend on images. G has a gradient from
both cosines, U and V from the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.settings import bounded, positive
from fednode.core.types import Json, Tensors
from fednode.lazy import F, Tensor, torch
from fednode.learn import init
from fednode.learn.coop import COOP_TUNING
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule

GLOBAL: Final = "global"
LEFT: Final = "left"
RIGHT: Final = "right"


@dataclass(frozen=True, slots=True)
class FedPGPConfig(AveragingConfig):
    """FedPGP (Cui et al., ICML 2024): a global prompt is averaged, its low-rank change is private.

    A node's prompt is the global one plus the product of two narrow matrices of its own.
    """

    rank: int = 8
    """b: width of the two private matrices."""
    contrast: float = 0.5
    """mu: weight of the contrastive term, which pulls the global prompt's texts to hand-written
    ones and apart from the node's own; 0: off."""
    temperature: float = 0.5
    """t: divisor of the cosines in the contrastive term."""
    anchor: Literal["template", "letters"] = "template"
    """The hand-written texts of the contrastive term. template: tuning.template, as in the paper.
    letters: tuning.context_length letters X before the name, as in the released code."""
    predict: Literal["personal", "global"] = "personal"
    """Prompt that a node classifies with: its own, or the global one, which fits new classes
    better."""

    def __post_init__(self) -> None:
        AveragingConfig.__post_init__(self)
        bounded("policy.rank", self.rank, 1)
        bounded("policy.contrast", self.contrast, 0)
        positive("policy.temperature", self.temperature)


class FedPGPPrompts(PromptModule):
    """A prompt and a change of it; only "global" is exchanged."""

    config: FedPGPConfig

    def initial(self, seed: int) -> Tensors:
        """Return the global prompt."""
        context = init.context(self.clip, self.settings, init.generator(seed))
        return Tensors({GLOBAL: context})

    def private(self, seed: int) -> Tensors:
        """Return the change's two matrices, drawn with deviation `init_std`; neither is zero."""
        draw, settings = init.generator(seed), self.settings
        left = (settings.vectors, self.config.rank)
        right = (self.config.rank, self.clip.text.width)
        return Tensors(
            {
                LEFT: init.normal(draw, left, settings.init_std),
                RIGHT: init.normal(draw, right, settings.init_std),
            }
        )

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Tensor:
        """Return [classes, D] of the prompt of `predict`; without a change, of the global one."""
        personal = self.config.predict == "personal" and LEFT in params
        return self.encode(personal_prompt(params) if personal else params[GLOBAL], classes)

    def loss(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return the cross-entropy with the node's own prompt, plus mu times the contrast."""
        contexts = torch.stack([inputs.params[GLOBAL], personal_prompt(inputs.params)])
        common, own = self.encode(contexts, inputs.classes)
        loss = F.cross_entropy(self.logits(inputs.params, batch, own), batch.targets)
        if not self.config.contrast:
            return loss
        near = (self.anchors(inputs.classes) * common).sum(dim=1)
        far = (common * own).sum(dim=1)
        contrast = F.softplus((far - near) / self.config.temperature).mean()
        return loss + self.config.contrast * contrast

    def anchors(self, classes: tuple[str, ...]) -> Tensor:
        """Return the hand-written unit text features [classes, D] of the contrastive term."""
        if self.config.anchor == "template":
            return self.handwritten(classes)
        letters = " ".join("X" * self.settings.vectors)
        return self.texts.written(classes, f"{letters} {{}}.")


def personal_prompt(params: Mapping[str, Tensor]) -> Tensor:
    """Return G + U V, [m, width]."""
    return params[GLOBAL] + params[LEFT] @ params[RIGHT]


class FedPGP(Averaging):
    """See the file's header."""

    name = "fedpgp"
    config_type = FedPGPConfig
    prompts = FedPGPPrompts
    tuning: ClassVar[Mapping[str, Json]] = {**COOP_TUNING, "batch_size": 16, "epochs": 2}
