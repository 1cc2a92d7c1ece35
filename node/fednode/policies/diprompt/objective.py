"""DiPrompT's objective: a global prompt, a prompt per domain, and a query that finds domains.

G:  CE(s cos(I, Z^G))                                                              (1, 2)
D:  for the domain m* of each image, CE(s cos(I, Z^m*)) - log[ exp(sim(V_m*, W_m*)) /
    sum_i exp(sim(V_m*, V_i)) ], W the hand-written prompt of the domain               (3)
Q:  m* = argmax_m P(y, m | x), a softmax over classes and domains                      (6)
    the squared distance and KL between Q and its beta moving average (7), and
    -log sum_m P(y, m | x), an addition of fednode: both terms of (7) are zero where Q begins, so
    without it Q would never move.

For each batch Q takes a step first. Then Q finds the domains, and G and D take their step (figure
2).

Prompts of different lengths are compared by their class-averaged text features. A domain's prompt
moves only if some image was assigned to the domain. On a CPU the domains of a batch are read, and
the prompts of other domains get no gradient. On a GPU nobody waits for them: all prompts get a
gradient, and `taken` says on the device which of them may move. A node predicts with Z_j = sum_m
w_m Z_j^m + Z_j^G (8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fednode.core.merge.momentum import alpha
from fednode.core.types import Tensors
from fednode.learn import initial
from fednode.learn.objective import Batch, Classifier, Given, Parameters, Tuning, Written
from fednode.policies.diprompt.config import GLOBAL, DiPrompTConfig, slot
from fednode.policies.domains import spoken

QUERY = "query"
AVERAGE = "average/query"
SUM = "average/sum"
WORDS = "a photo of a"
BEHIND = "with the domain of"


class Objective(Written):
    """Tune text prompts [m, width] on cached image features."""

    config: DiPrompTConfig

    @property
    def _words(self) -> Mapping[str, str]:
        """Return the words between context and class of each prompt: its domain's name."""
        return {GLOBAL: "", **{slot(domain): spoken(domain) for domain in self.config.domains}}

    def initial(self, seed: int) -> Tensors:
        """Return the initial value of every exchanged prompt, from words if words are given."""
        draw = initial.generator(seed)
        return Tensors(
            {
                name: initial.context(self.backbone, self.settings, draw)
                for name in self.config.names
            }
        )

    def private(self, seed: int) -> Tensors:
        """Return the Q prompt, whose initial value is words for every seed."""
        if self.config.query != "learn" or not self.has_domains:
            return Tensors()
        return Tensors({QUERY: self.query_start().cpu().numpy()})

    @property
    def has_domains(self) -> bool:
        """Tell whether there are domain prompts."""
        return self.config.prompts != "global"

    def query_start(self) -> Tensor:
        """Return the query's initial value, [query_length, width]: the embeddings of its words.

        A longer query repeats the words, a shorter query has the last of them. So the class always
        follows the last word.
        """
        words, length = self.backbone.text.embed_words(WORDS).float(), self.config.query_length
        return words.repeat(-(-length // len(words)), 1)[-length:]

    def begin(self, given: Given) -> Tuning:
        """Start a job."""
        return _Job(self, given)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return s * cos(I, Z_j) with equation 8's ensemble, or the nearest domain's prompt."""
        encoded = self.encoded(prompts, self.config.names, classes)
        common = encoded.pop(GLOBAL, None)
        texts = torch.stack([*encoded.values()]) if encoded else None

        def logits(batch: Batch) -> Tensor:
            if texts is None:
                assert common is not None, "there is one prompt at least"
                return self.scaled(batch.seen, common)
            mixed = self.mixed(batch.seen, texts)
            if common is not None:
                mixed = mixed + common
            unit = F.normalize(mixed, dim=2)
            cosines = torch.einsum("bd,bcd->bc", batch.seen, unit)
            return self.backbone.biased(self.backbone.logit_scale * cosines)

        return logits

    def mixed(self, features: Tensor, texts: Tensor) -> Tensor:
        """Return sum_m w_m Z^m, [B, classes, D], of domain texts [M, classes, D]."""
        best = torch.einsum("bd,mcd->bmc", features, texts).amax(dim=2)
        if self.config.ensemble == "top":
            return texts[best.argmax(dim=1)]
        weights = best / best.sum(dim=1, keepdim=True)
        return torch.einsum("bm,mcd->bcd", weights, texts)

    def encoded(
        self, prompts: Parameters, names: Sequence[str], classes: tuple[str, ...]
    ) -> dict[str, Tensor]:
        """Return Z^G and Z^m, [classes, D] each, of the prompts with these names.

        A domain's texts are: learned vectors, the domain's name, the class.
        """
        if not names:
            return {}
        words = tuple(self._words[name] for name in names)
        tokens = self.texts.tokens(classes, self.settings.vectors, words)
        contexts = torch.stack([prompts[name] for name in names])
        return dict(zip(names, self.backbone.text.encode(tokens, contexts), strict=True))

    def query_texts(self, query: Tensor, classes: tuple[str, ...]) -> Tensor:
        """Return Z^Q, [M, classes, D], of query, class, "with the domain of", domain."""
        texts = tuple(
            f"{name} {BEHIND} {spoken(domain)}"
            for domain in self.config.domains
            for name in classes
        )
        query_texts = self.backbone.text.encode(self.texts.tokens(texts, len(query)), query)
        return query_texts.view(len(self.config.domains), len(classes), -1)

    def written_domain(self, domain: str, classes: tuple[str, ...]) -> Tensor:
        """Return the hand-written prompt of a domain, averaged over classes, unit [D]."""
        template = f"{WORDS} {{}} {BEHIND} {spoken(domain)}."
        return F.normalize(self.texts.written(classes, template).mean(dim=0), dim=0)


@dataclass(slots=True)
class _Query:
    """The moving average of Q in one job, and its text features [M, classes, D]."""

    average: Tensor
    texts: Tensor
    weights: float


class _Job:
    """One node's training in a round."""

    def __init__(self, objective: Objective, given: Given) -> None:
        self._objective, self._given = objective, given
        self._query = self._averaged() if QUERY in given.prompts else None
        config, domain = objective.config, given.job.domain
        self.taken: Mapping[str, Tensor] = {}
        self._reads = objective.backbone.device.type == "cpu"
        self._true = config.domains.index(domain) if config.query == "labels" else None
        with torch.no_grad():
            self._written = (
                objective.query_texts(objective.query_start(), given.classes)
                if config.query == "written"
                else None
            )

    def loss(self, batch: Batch) -> Tensor:
        """Return the sum of the losses, without steps between them."""
        return torch.stack([*self.losses(batch)]).sum()

    def losses(self, batch: Batch) -> Iterator[Tensor]:
        """Yield the loss of Q if Q learns, then that of G and D, for domains that Q finds."""
        objective, given, query = self._objective, self._given, self._query
        if query is not None and objective.config.moves_query:
            asked = objective.query_texts(given.prompts[QUERY], given.classes)
            yield self._query_loss(batch, asked, query)
        which = self._domains(batch) if objective.has_domains else None
        if which is not None and not self._reads:
            domains = enumerate(objective.config.domains)
            self.taken = {slot(domain): (which == at).any() for at, domain in domains}
        texts = self._texts(which)
        loss = batch.seen.new_zeros(())
        if GLOBAL in texts:
            loss = loss + F.cross_entropy(objective.scaled(batch.seen, texts[GLOBAL]), batch.truth)
        if which is not None:
            loss = loss + objective.config.domain_weight * self._domain_loss(batch, which, texts)
        yield loss

    def _texts(self, which: Tensor | None) -> dict[str, Tensor]:
        """Return the text features of all prompts that a batch needs.

        which: the images' domains [B]. Prompts of other domains are needed for the contrast alone,
        as constants.
        """
        objective, given = self._objective, self._given
        chosen = set() if which is None else self._chosen(which)
        slots = [slot(domain) for domain in objective.config.domains]
        learn = [name for name in objective.config.names if name == GLOBAL]
        learn += [slots[at] for at in sorted(chosen)]
        texts = objective.encoded(given.prompts, learn, given.classes)
        if chosen and objective.config.contrast:
            rest = [name for name in slots if name not in learn]
            with torch.no_grad():
                texts |= objective.encoded(given.prompts, rest, given.classes)
        return texts

    def _chosen(self, which: Tensor) -> set[int]:
        """Return the domains of a batch; all of them if reading them would wait for a GPU."""
        return set(which.tolist() if self._reads else range(len(self._objective.config.domains)))

    def stepped(self) -> None:
        """Do nothing: averages move once per round."""

    def carry(self) -> Parameters:
        """Return the moving average of Q, including this round."""
        if self._query is None:
            return {}
        job, before = self._given.job, self._query.weights
        weight = alpha(job.round, max(1, job.rounds), self._objective.config.beta)
        share = weight / (before + weight)
        query = self._given.prompts[QUERY].detach()
        average = torch.lerp(self._query.average, query, share)
        return {AVERAGE: average, SUM: query.new_tensor([before + weight])}

    def _averaged(self) -> _Query:
        objective, given = self._objective, self._given
        job, beta = given.job, objective.config.beta
        average = given.carry.get(AVERAGE, objective.query_start())
        first = alpha(0, max(1, job.rounds), beta)
        weights = float(given.carry[SUM]) if SUM in given.carry else first
        with torch.no_grad():
            texts = objective.query_texts(average, given.classes)
        return _Query(average, texts, weights)

    @torch.no_grad()
    def _domains(self, batch: Batch) -> Tensor:
        """Return each image's domain [B], by equation 6 under its true class."""
        if self._true is not None:
            return torch.full_like(batch.truth, self._true)
        asked = self._written
        if asked is None:
            asked = self._objective.query_texts(self._given.prompts[QUERY], self._given.classes)
        return torch.einsum("bd,mbd->bm", batch.seen, asked[:, batch.truth]).argmax(dim=1)

    def _domain_loss(self, batch: Batch, which: Tensor, texts: Mapping[str, Tensor]) -> Tensor:
        """Return equation 3, averaged over the images."""
        objective = self._objective
        loss = batch.seen.new_zeros(())
        for at in sorted(self._chosen(which)):
            mine = (which == at).to(loss.dtype)
            own = texts[slot(objective.config.domains[at])]
            each = F.cross_entropy(objective.scaled(batch.seen, own), batch.truth, reduction="none")
            loss = loss + each @ mine
            if objective.config.contrast:
                loss = loss + mine.sum() * self._contrast(texts, at)
        return loss / len(which)

    def _contrast(self, texts: Mapping[str, Tensor], at: int) -> Tensor:
        """Return -log[exp(sim(V_m, W_m)) / sum_i exp(sim(V_m, V_i))]; only V_m has a gradient."""
        objective, given = self._objective, self._given
        domains = objective.config.domains
        means = [F.normalize(texts[slot(domain)].mean(dim=0), dim=0) for domain in domains]
        written = objective.written_domain(domains[at], given.classes)
        kept = [mean if number == at else mean.detach() for number, mean in enumerate(means)]
        others = torch.stack(kept)
        return torch.logsumexp(others @ means[at], dim=0) - means[at] @ written

    def _query_loss(self, batch: Batch, asked: Tensor, query: _Query) -> Tensor:
        """Return equation 7, summed over domains and averaged over images, and fednode's term."""
        objective, config = self._objective, self._objective.config
        scale = objective.backbone.logit_scale
        rows = torch.arange(len(batch.truth), device=batch.truth.device)
        now, before = asked[:, batch.truth], query.texts[:, batch.truth]
        loss = batch.seen.new_zeros(())
        if config.query_mse:
            loss = loss + (now - before).square().sum(dim=2).sum(dim=0).mean()
        # Over classes, for each domain: [M, B, classes].
        logits, fixed = (
            scale * torch.einsum("bd,mcd->mbc", batch.seen, features)
            for features in (asked, query.texts)
        )
        if config.query_kl:
            now_log, fixed_log = logits.log_softmax(dim=2), fixed.log_softmax(dim=2)
            drift = F.kl_div(fixed_log, now_log, reduction="none", log_target=True)
            loss = loss + drift.sum(dim=2).sum(dim=0).mean()
        if config.query_supervised:
            joint = logits.transpose(0, 1)
            whole = joint.flatten(1).logsumexp(dim=1)
            right = joint[rows, :, batch.truth].logsumexp(dim=1) - whole
            loss = loss - config.query_supervised * right.mean()
        return loss
