"""DiPrompT (CVPR 2024): a global prompt, a prompt for each domain, and a query that finds domains.

G:  CE(s cos(I, Z^G))                                                              (1, 2)
D:  for the domain m* of each image, CE(s cos(I, Z^m*)) - log[ exp(sim(V_m*, W_m*)) /
    sum_i exp(sim(V_m*, V_i)) ], W the hand-written prompt of the domain               (3)
Q:  m* = argmax_m P(y, m | x), a softmax over classes and domains                      (6)
    the squared distance and KL between Q and its beta moving average (7), and
    -log sum_m P(y, m | x), an addition of fednode: both terms of (7) are zero where Q begins, so
    without it Q would never move.

For each batch Q takes a step first. Then Q finds the domains, and G and D take their step (figure
2). Prompts of different lengths are compared by their class-averaged text features. A domain's
prompt moves only if some image was assigned to the domain: the prompts of other domains get no
gradient. A node predicts with Z_j = sum_m w_m Z_j^m + Z_j^G (8).

A contribution holds the changes of the prompts that training moved, and no others. So the presence
of a prompt is the indicator of the merge, and the weights are the nodes' own counts of images:

    V_m <- V_m + weighted mean of the changes of V_m                                   (4)
    avg_r = (A_{r-1} / A_r) avg_{r-1} + (alpha_r / A_r) V_r    A_r = alpha_0 + ... + alpha_r   (5)
    alpha_i = Beta(beta, beta) density at (i + 0.5) / (R + 1), as in CLIPood

If beta is below 1, the weights form a U: the first and the last rounds count most. The density's
constant cancels. Each domain prompt is kept twice: as merged, V, and as its moving average, from
which all nodes start and predict. With `adds_to: sent`, the average alone is kept. Q stays on its
node, with an average of its own. docs/divergence.md compares with the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np

from fednode.core.merge.mean import mean, weights_of
from fednode.core.merge.robust import combine
from fednode.core.rounds.engine import Method
from fednode.core.rounds.method import Contribution, MethodState, MomentSettings, Round, Sent
from fednode.core.settings import RoundSettings, bounded, positive
from fednode.core.types import EMPTY, Array, Json, Report, Tensors
from fednode.lazy import F, Tensor, torch
from fednode.learn import init
from fednode.learn.prompt_module import Batch, JobInputs, PromptModule
from fednode.policies import domains

GLOBAL, DOMAIN = "global", "domain."
QUERY = "query"
AVERAGE, SUM = "average/query", "average/sum"
"""Names, in the carry, of Q's moving average and of the sum of its weights."""
WORDS, BEHIND = "a photo of a", "with the domain of"
RAW: Final = "raw/"
"""Prefix of the merged prompts V; the shared prompts are their moving averages."""
SUMS: Final = "sum/"
"""Prefix of a domain's A_r; rounds in which no node changed its prompt do not count."""


def alpha(index: int, rounds: int, beta: float) -> float:
    """Return the weight of round `index` of R rounds; 0 is the start; after R it repeats from 1."""
    if index > rounds:
        index = 1 + (index - 1) % rounds
    x = (index + 0.5) / (rounds + 1)
    return float((x * (1.0 - x)) ** (beta - 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiPrompTConfig(MomentSettings):
    """DiPrompT (CVPR 2024): a global prompt, and a prompt for each domain.

    docs/divergence.md compares these settings with the paper.
    """

    domains: tuple[str, ...] = ()
    """Names of all source domains. The domain of an image need not be known."""
    prompts: Literal["both", "global", "domains"] = "both"
    """Prompts that are tuned (table 3): both kinds, or the global prompt or the domain prompts
    alone."""
    domain_weight: float = 1.0
    """lambda: weight of the loss of the domain prompts."""
    contrast: bool = True
    """true: use the contrastive term of equation 3, which keeps domain prompts apart."""
    query: Literal["learn", "written", "labels"] = "learn"
    """How an image's domain is found (equation 6). learn: by Q prompts that are tuned. written: by
    the words from which Q prompts start. labels: data.domain is the domain."""
    query_length: int = 4
    """Number of vectors of Q. Q starts from the words "a photo of a", repeated or cut to this
    length."""
    query_mse: bool = True
    """true: use the feature term of equation 7."""
    query_kl: bool = True
    """true: use the logits term of equation 7."""
    query_supervised: float = 1.0
    """Weight of -log sum_m P(y, m | x), an addition of fednode: without it equation 7 never moves
    Q (docs/divergence.md)."""
    momentum: bool = True
    """true: start from the beta moving average of the domain prompts (equation 5); needs
    rounds.max."""
    adds_to: Literal["merged", "sent"] = "merged"
    """What equation 4 adds the changes of domain prompts to. merged: to the prompts V that were
    merged last, which are kept beside their moving averages. sent: to the moving averages from
    which the nodes started, so that nothing else is kept. Only with momentum."""
    beta: float = 0.2
    """beta of that average's weights. Below 1, the first and the last rounds count most."""
    ensemble: Literal["dynamic", "top"] = "dynamic"
    """Prediction. dynamic: equation 8. top: the nearest domain's prompt alone."""

    def __post_init__(self) -> None:
        MomentSettings.__post_init__(self)
        domains.check(self.domains)
        bounded("policy.domain_weight", self.domain_weight, 0)
        bounded("policy.query_length", self.query_length, 1)
        bounded("policy.query_supervised", self.query_supervised, 0)
        positive("policy.beta", self.beta)
        if self.wire_dtype == "int8":
            raise ValueError("policy.wire_dtype is int8; DiPrompT's prompts take float16 or more.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the exchanged prompts, [context length, width] each."""
        common = () if self.prompts == "domains" else (GLOBAL,)
        return common if self.prompts == "global" else (*common, *map(slot, self.domains))

    @property
    def moves_query(self) -> bool:
        """Tell whether the loss of Q has any term."""
        return bool(self.query_mse or self.query_kl or self.query_supervised)


def slot(domain: str) -> str:
    """Return the name of a domain's prompt."""
    return DOMAIN + domain


# What is tuned ------------------------------------------------------------------------------------


@dataclass(slots=True)
class QueryState:
    """What a job keeps of Q.

    Attributes:
        average: the moving average of Q; None if Q is not learned
        weights: the sum of the average's weights
        texts: text features [M, classes, D] of the average, or of a hand-written query; None: none
    """

    average: Tensor | None = None
    weights: float = 0.0
    texts: Tensor | None = None


class DiPrompTPrompts(PromptModule):
    """Text prompts [m, width] on cached image features; `inputs.state` is a QueryState."""

    config: DiPrompTConfig

    def initial(self, seed: int) -> Tensors:
        """Return the initial value of every exchanged prompt, from words if words are given."""
        draw = init.generator(seed)
        names = self.config.names
        return Tensors({name: init.context(self.clip, self.settings, draw) for name in names})

    def private(self, seed: int) -> Tensors:
        """Return the Q prompt, whose initial value is words for every seed."""
        if self.config.query != "learn" or self.config.prompts == "global":
            return EMPTY
        return Tensors({QUERY: self.query_start().cpu().numpy()})

    def query_start(self) -> Tensor:
        """Return the query's initial value, [query_length, width]: the embeddings of its words.

        A longer query repeats the words, a shorter query has the last of them. So the class always
        follows the last word.
        """
        words, length = self.clip.text.embed_words(WORDS).float(), self.config.query_length
        return words.repeat(-(-length // len(words)), 1)[-length:]

    def prompt_texts(
        self, params: Mapping[str, Tensor], names: Sequence[str], classes: tuple[str, ...]
    ) -> dict[str, Tensor]:
        """Return Z^G and Z^m, [classes, D] each, of the prompts with these names.

        A domain's texts are: learned vectors, the domain's name, the class.
        """
        if not names:
            return {}
        words = tuple(
            "" if name == GLOBAL else domains.spoken(name.removeprefix(DOMAIN)) for name in names
        )
        tokens = self.texts.tokens(classes, self.settings.vectors, words)
        contexts = torch.stack([params[name] for name in names])
        return dict(zip(names, self.clip.text.encode(tokens, contexts), strict=True))

    def query_texts(self, query: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return Z^Q, [M, classes, D], of query, class, "with the domain of", domain."""
        names = tuple(
            f"{name} {BEHIND} {domains.spoken(domain)}"
            for domain in self.config.domains
            for name in classes
        )
        texts = self.clip.text.encode(self.texts.tokens(names, len(query)), query)
        return texts.view(len(self.config.domains), len(classes), -1)

    def domain_text(self, domain: str, classes: tuple[str, ...]) -> Tensor:
        """Return W, the hand-written prompt of a domain, averaged over classes, unit [D]."""
        template = f"{WORDS} {{}} {BEHIND} {domains.spoken(domain)}."
        return F.normalize(self.texts.written(classes, template).mean(dim=0), dim=0)

    def text_features(self, params: Mapping[str, Tensor], classes: tuple[str, ...]) -> Any:
        """Return Z^G [classes, D] and all Z^m [M, classes, D]; None where there are none."""
        texts = self.prompt_texts(params, self.config.names, classes)
        common = texts.pop(GLOBAL, None)
        return common, torch.stack([*texts.values()]) if texts else None

    def logits(self, params: Mapping[str, Tensor], batch: Batch, texts: Any) -> Tensor:
        """Return s * cos(I, Z_j) with equation 8's ensemble, or the nearest domain's prompt."""
        common, of_domains = texts
        features = batch.image_features
        if of_domains is None:
            return self.clip_logits(features, common)
        mixed = self.ensemble(features, of_domains)
        unit = F.normalize(mixed if common is None else mixed + common, dim=2)
        cosines = torch.einsum("bd,bcd->bc", features, unit)
        return self.clip.add_logit_bias(self.clip.logit_scale * cosines)

    def ensemble(self, features: Tensor, texts: Tensor) -> Tensor:
        """Return sum_m w_m Z^m, [B, classes, D], of domain texts [M, classes, D]."""
        best = torch.einsum("bd,mcd->bmc", features, texts).amax(dim=2)
        if self.config.ensemble == "top":
            return texts[best.argmax(dim=1)]
        weights = best / best.sum(dim=1, keepdim=True)
        return torch.einsum("bm,mcd->bcd", weights, texts)

    def start(self, inputs: JobInputs) -> QueryState:
        """Return Q's moving average as the last job left it, and its texts."""
        if QUERY in inputs.params:
            average = inputs.carry.get(AVERAGE, self.query_start())
            first = alpha(0, max(1, inputs.job.rounds), self.config.beta)
            weights = float(inputs.carry[SUM]) if SUM in inputs.carry else first
            with torch.no_grad():
                return QueryState(average, weights, self.query_texts(average, inputs.classes))
        if self.config.query == "written":
            with torch.no_grad():
                return QueryState(texts=self.query_texts(self.query_start(), inputs.classes))
        return QueryState()

    def carry(self, inputs: JobInputs) -> Mapping[str, Tensor]:
        """Return the moving average of Q, including this round."""
        state, job = inputs.state, inputs.job
        if state.average is None:
            return {}
        weight = alpha(job.round, max(1, job.rounds), self.config.beta)
        query, total = inputs.params[QUERY].detach(), state.weights + weight
        average = torch.lerp(state.average, query, weight / total)
        return {AVERAGE: average, SUM: query.new_tensor([total])}

    def losses(self, batch: Batch, inputs: JobInputs) -> Iterator[Tensor]:
        """Yield the loss of Q if Q learns, then that of G and D, for domains that Q finds."""
        config = self.config
        if inputs.state.average is not None and config.moves_query:
            yield self.query_loss(batch, inputs)
        which = None if config.prompts == "global" else self.domains_of(batch, inputs)
        texts = self._trained_texts(which, inputs)
        loss = batch.image_features.new_zeros(())
        if GLOBAL in texts:
            logits = self.clip_logits(batch.image_features, texts[GLOBAL])
            loss = loss + F.cross_entropy(logits, batch.targets)
        if which is not None:
            loss = loss + config.domain_weight * self.domain_loss(batch, which, texts, inputs)
        yield loss

    def domains_of(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return each image's domain [B], by equation 6 under its true class."""
        if self.config.query == "labels":
            return torch.full_like(batch.targets, self.config.domains.index(inputs.job.domain))
        with torch.no_grad():
            asked = inputs.state.texts
            if QUERY in inputs.params:
                asked = self.query_texts(inputs.params[QUERY], inputs.classes)
            own = asked[:, batch.targets]
            return torch.einsum("bd,mbd->bm", batch.image_features, own).argmax(dim=1)

    def _trained_texts(self, which: Tensor | None, inputs: JobInputs) -> dict[str, Tensor]:
        """Return the text features of all prompts that a batch needs.

        which: the images' domains [B]. Prompts of other domains are needed for the contrast alone,
        as constants.
        """
        names = list(map(slot, self.config.domains))
        found = [] if which is None else [names[at] for at in sorted(set(which.tolist()))]
        learn = [name for name in self.config.names if name == GLOBAL] + found
        texts = self.prompt_texts(inputs.params, learn, inputs.classes)
        if found and self.config.contrast:
            rest = [name for name in names if name not in found]
            with torch.no_grad():
                texts |= self.prompt_texts(inputs.params, rest, inputs.classes)
        return texts

    def domain_loss(
        self, batch: Batch, which: Tensor, texts: Mapping[str, Tensor], inputs: JobInputs
    ) -> Tensor:
        """Return equation 3, averaged over the images."""
        loss = batch.image_features.new_zeros(())
        for at in sorted(set(which.tolist())):
            mine = (which == at).to(loss.dtype)
            logits = self.clip_logits(batch.image_features, texts[slot(self.config.domains[at])])
            loss = loss + F.cross_entropy(logits, batch.targets, reduction="none") @ mine
            if self.config.contrast:
                loss = loss + mine.sum() * self.contrast(texts, at, inputs.classes)
        return loss / len(which)

    def contrast(self, texts: Mapping[str, Tensor], at: int, classes: tuple[str, ...]) -> Tensor:
        """Return -log[exp(sim(V_m, W_m)) / sum_i exp(sim(V_m, V_i))]; only V_m has a gradient."""
        names = self.config.domains
        means = [F.normalize(texts[slot(domain)].mean(dim=0), dim=0) for domain in names]
        others = [mean if number == at else mean.detach() for number, mean in enumerate(means)]
        near = torch.stack(others) @ means[at]
        return torch.logsumexp(near, dim=0) - means[at] @ self.domain_text(names[at], classes)

    def query_loss(self, batch: Batch, inputs: JobInputs) -> Tensor:
        """Return equation 7, summed over domains and averaged over images, and fednode's term."""
        config, features, targets = self.config, batch.image_features, batch.targets
        asked = self.query_texts(inputs.params[QUERY], inputs.classes)
        average = inputs.state.texts
        loss = features.new_zeros(())
        if config.query_mse:
            distance = (asked[:, targets] - average[:, targets]).square().sum(dim=2)
            loss = loss + distance.sum(dim=0).mean()
        # Over classes, for each domain: [M, B, classes].
        logits, fixed = (
            self.clip.logit_scale * torch.einsum("bd,mcd->mbc", features, texts)
            for texts in (asked, average)
        )
        if config.query_kl:
            now_log, fixed_log = logits.log_softmax(dim=2), fixed.log_softmax(dim=2)
            drift = F.kl_div(fixed_log, now_log, reduction="none", log_target=True)
            loss = loss + drift.sum(dim=2).sum(dim=0).mean()
        if config.query_supervised:
            joint = logits.transpose(0, 1)
            whole = joint.flatten(1).logsumexp(dim=1)
            images = torch.arange(len(targets), device=targets.device)
            right = joint[images, :, targets].logsumexp(dim=1) - whole
            loss = loss - config.query_supervised * right.mean()
        return loss


# The exchange -------------------------------------------------------------------------------------


class DiPrompT(Method):
    """DiPrompT's jobs and merges in mesh-wide rounds; see the file's header."""

    name = "diprompt"
    config_type = DiPrompTConfig
    prompts = DiPrompTPrompts
    tuning: ClassVar[Mapping[str, Json]] = {
        "init_words": "a photo of a",
        "optimizer": "adam",
        "lr": 5e-4,
        "weight_decay": 0.0,
        "batch_size": 16,
        "schedule": "constant",
    }

    @classmethod
    def settings_fault(cls, config: Any, rounds: RoundSettings, domain: str) -> str:
        """Refuse a run without an end, and a missing domain if `query` is "labels"."""
        if config.momentum and not rounds.max:
            return "rounds.max is 0; DiPrompT's moving average needs to know how many there are."
        fault = domains.settings_fault(config.domains, domain) if config.query == "labels" else ""
        return fault or super().settings_fault(config, rounds, domain)

    @classmethod
    def paper_bytes(
        cls, config: Any, shapes: Mapping[str, tuple[int, ...]], rounds: int, clients: int
    ) -> int:
        """Return the bytes of all prompts, up alone: figure 5 counts uploads."""
        return rounds * clients * sum(map(math.prod, shapes.values())) * 4

    def first(self, initial: Tensors) -> MethodState:
        """Return the state before round 1: the moving averages equal the prompts."""
        if not self.config.momentum:
            return MethodState(initial)
        names = [name for name in initial if name.startswith(DOMAIN)]
        weight = alpha(0, max(1, self.context.rounds.max), self.config.beta)
        kept = names if self.config.adds_to == "merged" else []
        raw: dict[str, Array] = {RAW + name: initial[name] for name in kept}
        sums = {SUMS + name: np.array([weight], dtype=np.float32) for name in names}
        return MethodState(initial, arrays=Tensors({**raw, **sums}))

    @property
    def drifts(self) -> bool:
        """True: changes are added to prompts and moving averages."""
        return True

    def complete(self, names: frozenset[str], expected: frozenset[str]) -> bool:
        """Accept any subset of the prompts: a contribution holds those that changed."""
        return True

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return the changes of the prompts that training moved."""
        before = now.draft.shared
        changes = {name: report.tensors[name] - before[name] for name in report.changed}
        return Sent(Tensors(changes), now.draft)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Add the weighted mean change of each prompt over the nodes that changed it (eq. 4).

        A domain's prompt is an average that moves towards V, `raw` (equation 5).
        """
        shared, arrays = dict(now.draft.shared), dict(now.draft.arrays)
        carry = dict(now.draft.carry)
        for name in now.draft.shared:
            moved = [contribution for contribution in given if name in contribution.tensors]
            if not moved:
                continue
            weights = weights_of([contribution.samples for contribution in moved])
            still = {name: np.zeros_like(shared[name])}
            told = [{name: contribution.tensors[name]} for contribution in moved]
            change = combine(self.config.merge, told, weights, still)[name]
            if name.startswith(DOMAIN) and self.config.momentum:
                raw = arrays.get(RAW + name, shared[name]) + change
                if RAW + name in arrays:
                    arrays[RAW + name] = raw
                weight = alpha(now.number, self.context.rounds.max, self.config.beta)
                # A state taken over may hold any number.
                before = max(0.0, float(arrays[SUMS + name][0]))
                shared[name] = mean([shared[name], raw], [before, weight])
                arrays[SUMS + name] = np.array([before + weight], dtype=np.float32)
            else:
                shared[name] = shared[name] + change
            if self.config.optimizer == "reset":
                carry = {
                    key: array for key, array in carry.items() if not key.startswith(f"{name}/")
                }
        merged = replace(now.draft, shared=Tensors(shared), arrays=Tensors(arrays))
        return replace(merged, carry=Tensors(carry))
