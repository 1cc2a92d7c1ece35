"""What policy gda computes: sums of a node's images, losses of left-out images, and predictions.

`predict: personal` answers for a node's own classes with the node's means drawn to the mesh's, as
far as the mesh's are worth (Head.worth), and with the node's own classifier alone where its
left-out images are surely better off with it. Other classes get the mesh's classifier; classes that
no node has images of get it with a ratio of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from torch import Tensor

from fednode.core.types import PRIVATE, Array, Job, Tensors
from fednode.errors import DataError
from fednode.learn import trust
from fednode.learn.class_sums import WEIGHTS, SumsObjective, answering, rows_of, sums_of, wide
from fednode.learn.gaussian import Floats, Head, Scatter, Sums, between, total
from fednode.learn.objective import Classifier, Computed, Leaves, Parameters
from fednode.learn.ratio import HEATS, RATIOS, Choice, best, log_loss, losses
from fednode.policies.gda import rows
from fednode.policies.gda.config import GDAConfig
from fednode.policies.gda.exchange import SUMS

VOTED: Final = PRIVATE + rows.VOTED
SURELY = 2.0
"""Standard errors by which a node must be better off alone."""
MIXED_RATIO = 15.0
"""Least ratio of the hand-written prompt for a list of classes of which only some have images. With
a smaller one, images of the others are drawn to the classes that have images: all classes in one
list, on the images of configs/experiments/pays-classes.yaml (seeds 1 and 2), new classes got 46.0
at ratio 1, 51.9 at 10 and 53.5 at 15 (zero-shot 53.8); base classes 87.2, 83.0, 78.0 (47.7)."""
CHOICES: Final = {"personal": 0, "alone": 0, "global": 1, "mixed": 1, "unseen": 2}
"""The row of rows.CHOICE for each classifier of SAID that takes one."""
SAID: Final[Mapping[str, str]] = {
    "alone": "this node classifies by the class means of its own images alone, because those of "
    "the mesh do not fit its images",
    "personal": "this node classifies by the class means of its own images, mixed with those of "
    "the mesh",
    "global": "this node classifies by the class means of the mesh",
    "mixed": "this node classifies by the class means of the mesh, and by the hand-written prompt "
    "where no node has images of a class",
    "unseen": "no node has images of these classes: this node estimates their means from their "
    "names, and uses the hand-written prompt, too",
    "prompt": "this node classifies by the hand-written prompt, because it knows no class means "
    "yet",
}
"""Which classifier answers, in words."""
WEIGHED: Final = (
    "the weights in this file classify; for a class that it does not name the hand-written prompt "
    "answers"
)


class Objective(SumsObjective):
    """Sums, losses and the classifier of policy gda; see the file's header."""

    config: GDAConfig
    sends_sums = True

    def initial(self, seed: int) -> Tensors:
        """Return the sums over no images."""
        found = super().initial(seed)
        if self.config.share == "means":
            return found
        size = found[rows.ROWS].shape[1] - 1
        return Tensors({**found, rows.MOMENT: np.zeros(size * (size + 1) // 2)})

    def fit(
        self,
        job: Job,
        features: Tensor,
        labels: Tensor,
        classes: tuple[str, ...],
        least: int,
        images: Sequence[bytes] = (),
    ) -> Computed:
        """Return the arrays of a stage; the carry holds what the node keeps for itself."""
        x, y = wide(features), labels.cpu().numpy()
        names = [classes[at] for at in y]
        marks = rows.marks_of(names, images or [one.tobytes() for one in x])
        if job.stage == SUMS:
            return self._sums(job, Sums.of(x, y, classes), x, names, marks, max(least, 1))
        return self._losses(job, x, names, marks, max(least, 1))

    def _sums(
        self, job: Job, sums: Sums, x: Floats, names: Sequence[str], marks: Array, least: int
    ) -> Computed:
        """Return the sums to send: those of a class are new if `least` of its images changed.

        The difference of two messages would tell the feature of a single image.
        """
        fresh = dict(zip(sums.classes, rows_of(sums), strict=True))
        here = {name: marks[[one == name for one in names]] for name in fresh}
        sent, there = _sent(job.carry)
        every = sorted({*fresh, *sent})
        moved = {
            name: rows.moved(here.get(name, marks[:0]), there.get(name, marks[:0]))
            for name in every
        }
        news = [name for name in every if moved[name] >= least]
        moment = job.carry.get(PRIVATE + rows.SENT_MOMENT)
        needed = 0 if self.config.few_images else rows.ENOUGH * x.shape[1]
        if self.config.share == "sums":
            some = [name for name in every if moved[name] and (name in sent or name in news)]
            changed = sum(moved[name] for name in some)
            if moment is not None and (changed < needed or some != news):
                news = []  # a second moment tells single images where few changed
        told = {name for name in sent if name not in news}
        for name in news:
            if name in fresh and fresh[name][0] >= least:
                sent[name], there[name] = fresh[name], here[name]
                told.add(name)
        if self.config.share == "sums" and (news or moment is None):
            mine = x[[name in told for name in names]]
            if len(mine) < needed:
                raise DataError(
                    f"policy.share is 'sums', and this node would send sums over {len(mine)} "
                    f"images; from fewer than {needed} (four times the {x.shape[1]} dimensions of "
                    "the model's features) members could find the images themselves: add images, "
                    "or set policy.share to means on all nodes."
                )
            moment = rows.triangle((mine.T @ mine).astype(np.float32))
        known = tuple(every)
        kept: dict[str, Any] = {
            rows.OWN: rows.aligned(rows_of(sums).astype(np.float32), sums.classes, known),
            rows.OWN_MOMENT: x.T @ x,
            rows.SENT: np.array([sent.get(name, np.zeros(1 + x.shape[1])) for name in known]),
            rows.SENT_IMAGES: np.concatenate([there.get(name, marks[:0]) for name in known]),
        }
        arrays: dict[str, Any] = {
            rows.ROWS: np.array([sent[name] for name in sorted(told)]).reshape(-1, 1 + x.shape[1])
        }
        if moment is not None:
            arrays[rows.MOMENT] = kept[rows.SENT_MOMENT] = moment
        # A round that ends before `losses` keeps what the last one found out about the peers.
        judged = {PRIVATE + rows.WORSE, PRIVATE + rows.ALONE}
        last = {
            name: one for name, one in job.carry.items() if name.startswith(VOTED) or name in judged
        }
        carry = Tensors({**last, **{PRIVATE + name: one for name, one in kept.items()}}, known)
        return Computed(Tensors(arrays, sorted(told)), None, carry)

    def _losses(
        self, job: Job, x: Floats, names: Sequence[str], marks: Array, least: int
    ) -> Computed:
        arrays = {name: np.asarray(one, np.float64) for name, one in job.reference.items()}
        known = job.reference.classes
        own = sums_of(arrays[rows.OWN], known, arrays[rows.OWN_MOMENT])
        lonely, place = self._alone(own, x, names)
        mesh = Mesh(self, {**arrays, rows.ALONE: place}, known)
        tables, worse = mesh.tables(x, names, lonely)
        told: dict[str, Any] = {
            name: np.clip(one, 0.0, rows.LOSS_MAX) for name, one in tables.items()
        }
        before = job.carry.get(VOTED + "images")
        if before is not None and 0 < rows.moved(marks, before) < least:  # as for the sums
            told = {name: job.carry[VOTED + name] for name in rows.TABLES}
            marks = before
        voted = {VOTED + name: one for name, one in {**told, "images": marks}.items()}
        kept = {PRIVATE + rows.WORSE: worse, PRIVATE + rows.ALONE: place, **voted}
        carry = Tensors({**job.carry, **kept}, job.carry.classes)
        return Computed(Tensors(told), float(tables["personal"].min()), carry)

    def _alone(self, own: Sums, x: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the densities [n, C] of left-out images of the node alone, and rows.ALONE."""
        labels, z = _places(names, own.classes), self.prompt(x, own.classes)
        gauss = Head(own, self.template).left_out(x, names, own.classes)
        table = losses(gauss, z, labels)
        row, column = np.unravel_index(int(np.argmin(table)), rows.TABLE)
        logits = best(table).logits(gauss, z)
        right = float((logits.argmax(axis=1) == labels).mean())
        return gauss, np.array([row, column, right], np.float64)

    def classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> Classifier:
        """Return a function that gives the logits [B, classes] of the classifier that answers."""
        exported = self.exported(prompts, classes)
        return exported or answering(self._mesh(prompts).affine(classes), self.width)

    def describe_classifier(self, prompts: Parameters, classes: tuple[str, ...]) -> str:
        """Return a sentence on which classifier answers for these classes, and whose sums count."""
        return WEIGHED if WEIGHTS in prompts else self._mesh(prompts).answers(classes)

    def _mesh(self, prompts: Parameters) -> Mesh:
        assert isinstance(prompts, Leaves), "class sums name their classes"
        return Mesh(self, {name: wide(one) for name, one in prompts.items()}, prompts.classes)


def _sent(carry: Tensors) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the rows that a node sent last and the marks of their images, by class."""
    if PRIVATE + rows.SENT not in carry:
        return {}, {}
    sent = carry[PRIVATE + rows.SENT]
    ends = np.cumsum(sent[:, 0]).astype(int)
    parts = np.split(carry[PRIVATE + rows.SENT_IMAGES], ends[:-1])
    held = [at for at, row in enumerate(sent) if row[0]]
    names = carry.classes
    return {names[at]: sent[at] for at in held}, {names[at]: parts[at] for at in held}


class Mesh:
    """All contributions as one node knows them, and its classifiers from them.

    doubted: for each peer some of whose classes do not fit their names, these classes, and the
    classes that they look like (node/fednode/learn/trust.py). They do not count here.
    """

    def __init__(
        self, objective: Objective, arrays: Mapping[str, Any], classes: tuple[str, ...]
    ) -> None:
        self._objective, self._arrays = objective, arrays
        self._share = objective.config.share
        self.own = (
            sums_of(arrays[rows.OWN], classes, arrays[rows.OWN_MOMENT])
            if rows.OWN in arrays
            else None
        )
        kept = rows.kept_in(arrays, classes)
        told = {
            name: sums_of(one.rows, one.classes, self._second(name)) for name, one in kept.items()
        }
        self.left_out = rows.left_out(kept)
        self._told = told
        self.doubted = self._doubted(told)
        self.peers = trust.counted(self.own, told, self.doubted)
        parts = self.peers if self.own is None else [self.own, *self.peers]
        self.head = self._head(parts) if parts else None

    def _second(self, name: str) -> Floats | None:
        found = self._arrays.get(rows.SECOND + name)
        return None if found is None else np.asarray(rows.squared(found), np.float64)

    def _doubted(self, peers: Mapping[str, Sums]) -> dict[str, trust.Names]:
        own, objective = self.own, self._objective
        if own is None or rows.ALONE not in self._arrays:
            return {}
        choice = self._at(self._arrays[rows.ALONE])

        def fit(sums: Sums) -> Callable[[Floats], Floats]:
            head, names = Head(sums, objective.template, scatter=own.scatter), sums.classes
            return lambda x: choice.logits(head.gauss(x, names), objective.prompt(x, names))

        right = float(self._arrays[rows.ALONE][2])
        return trust.misnamed(own, peers, fit, objective.prompt, right)

    def _head(self, parts: Sequence[Sums]) -> Head:
        whole = total(parts)
        if self._share == "sums" and whole.moment is not None:
            return Head(whole, self._objective.template)
        size = whole.sums.shape[1]
        nothing: Scatter = np.zeros((size, size)), 0.0
        inside, free = nothing if self.own is None else self.own.scatter
        for one in parts:
            if one is not self.own and one.moment is not None:
                more, degrees = one.scatter
                inside, free = inside + more, free + degrees
        scatter = between((inside, free), parts)
        return Head(whole, self._objective.template, scatter=scatter)

    def tables(
        self, x: Floats, names: Sequence[str], lonely: Floats
    ) -> tuple[dict[str, Floats], Floats]:
        """Return the tables of losses, and rows.WORSE. lonely: densities [n, C] of the node alone.

        Own images are left out one by one. For the mesh's classifier the whole node is left out,
        too, if the others have all its classes, and for unseen classes if they have none of them.
        """
        own, head = self.own, self.head
        assert own is not None, "the stage of sums came before"
        assert head is not None, "a node's own sums are a part"
        labels, z = _places(names, own.classes), self._objective.prompt(x, own.classes)
        near = head.left_out(x, names, own.classes, own, head.worth(own))
        personal, unseen = losses(near, z, labels), np.zeros(rows.TABLE)
        mesh = [self._known(head, head.left_out(x, names, head.sums.classes), x, names)]
        others = self._head(self.peers) if self.peers else None
        seen = [name in others.sums.classes for name in own.classes] if others else []
        if others and all(seen):
            asked = others.sums.classes
            mesh.append(self._known(others, others.gauss(x, asked), x, names))
        elif others and not any(seen) and others.sums.classes:
            unseen = losses(others.gauss(x, own.classes), z, labels)

        def worse(choice: Choice) -> float:
            together, apart = choice.logits(near, z), choice.logits(lonely, z)
            return _surely(log_loss(together, labels) - log_loss(apart, labels))

        table = np.array([[worse(Choice(r, t)) for t in HEATS] for r in RATIOS])
        return {"personal": personal, "mesh": np.mean(mesh, axis=0), "unseen": unseen}, table

    def _known(self, head: Head, gauss: Floats, x: Floats, names: Sequence[str]) -> Floats:
        asked = head.sums.classes
        return losses(gauss, self._objective.prompt(x, asked), _places(names, asked))

    def logits(self, x: Floats, classes: tuple[str, ...]) -> Floats:
        """Return logits [n, C] for class names."""
        return self.affine(classes)(x)

    def affine(self, classes: tuple[str, ...]) -> Callable[[Floats], Floats]:
        """Return the function from unit features [n, D] to logits [n, C]; it is affine."""
        which, head, prompt = self.which(classes), self.head, self._objective.prompt
        if which == "prompt" or head is None:
            return lambda x: prompt(x, classes)
        if which == "alone":
            assert self.own is not None, "a node with images"
            head = Head(self.own, self._objective.template)
        own, weight, choice = None, 0.0, self.choice(CHOICES[which])
        if which == "personal":
            assert self.own is not None, "a node with images"
            own, weight = self.own, head.worth(self.own)
        if which == "mixed":
            choice = choice._replace(ratio=max(choice.ratio, MIXED_RATIO))
        return lambda x: choice.logits(head.gauss(x, classes, own, weight), prompt(x, classes))

    def which(self, classes: Sequence[str]) -> str:
        """Return the classifier that answers for a list of class names, a key of SAID."""
        if self.head is None or not self.head.sums.classes:
            return "prompt"
        if self.personal(classes):
            return "alone" if self.alone else "personal"
        seen = [name in self.head.sums.classes for name in classes]
        return "global" if all(seen) else "mixed" if any(seen) else "unseen"

    def answers(self, classes: Sequence[str]) -> str:
        """Return a sentence on which classifier answers, and which classes of peers do not count.

        If more peers contradict a class's images than agree with them, it is this node's labels
        that are odd.
        """
        notes = [SAID[self.which(classes)]]
        for peer, wrong in self.doubted.items():
            looks = [f"{name!r} looks like {other!r}" for name, other in list(wrong.items())[:2]]
            more = f", and {len(wrong) - 2} more do not fit their names" if len(wrong) > 2 else ""
            notes.append(f"it leaves out classes of {peer}: {', '.join(looks)}{more}")
        if self.left_out:
            left = ", ".join(self.left_out.values())
            notes.append(f"{left} have no room (policy.classes_max)")
        odd = [name for name in self.own.classes if self._odd(name)] if self.own else []
        if odd:
            notes.append(
                f"most other nodes have other images under {', '.join(map(repr, odd))} than this "
                "node: check the labels of its images"
            )
        return "; ".join(notes)

    def _odd(self, name: str) -> bool:
        """Tell whether two peers or more, and most of those that have a class, contradict it."""
        peers = [peer for peer, sums in self._told.items() if name in sums.classes]
        against = sum(name in self.doubted.get(peer, {}) for peer in peers)
        return against > 1 and 2 * against > len(peers)

    def personal(self, classes: Sequence[str]) -> bool:
        """Tell whether the node's personal classifier answers for these classes."""
        wanted = self._objective.config.predict == "personal"
        return wanted and self.own is not None and set(classes) <= set(self.own.classes)

    @property
    def alone(self) -> bool:
        """Tell whether the node's images say by SURELY standard errors that it is better alone."""
        if rows.WORSE not in self._arrays or rows.CHOICE not in self._arrays:
            return False
        row, column = self._arrays[rows.CHOICE][0]
        return bool(self._arrays[rows.WORSE][int(row), int(column)] > 0)

    def choice(self, which: int) -> Choice:
        """Return the ratio and temperature of one of rows.TABLES; 1 and 1 before the first vote."""
        found = self._arrays.get(rows.CHOICE)
        return Choice(1.0, 1.0) if found is None else self._at(found[which])

    def _at(self, place: Floats) -> Choice:
        return Choice(RATIOS[int(place[0])], HEATS[int(place[1])])


def _places(names: Sequence[str], classes: Sequence[str]) -> Any:
    here = {name: at for at, name in enumerate(classes)}
    return np.array([here[name] for name in names])


def _surely(worse: Floats) -> float:
    """Return by how much a mean is surely above 0; below 0 if it is not, or for one image."""
    if len(worse) < 2:
        return -1.0
    return float(worse.mean() - SURELY * worse.std(ddof=1) / len(worse) ** 0.5)
