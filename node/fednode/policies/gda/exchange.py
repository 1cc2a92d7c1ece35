"""Policy gda: nodes send class sums, keep all contributions by sender, and vote on a ratio.

    sums      a node's classes, counts and sums of features (rows.ROWS), and with `share: sums` its
              second moment; replaces what the node sent before. Nothing where nothing changed,
              except in each AGAIN-th round
    losses    tables of losses of left-out images, over ratios and temperatures; one vote a node

All nodes hold the same contributions, each by its sender, so their sums are equal bit for bit in
whatever order messages came. A dead node's contribution stays; one of a node that left is dropped.
node/fednode/learn/gaussian.py has the classifier, policies/gda/objective.py makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from fednode.core.rounds.method import SHARED, Contribution, Method, MethodState, Round, Sent
from fednode.core.types import EMPTY, PRIVATE, Array, Dtype, Job, Json, Report, Tensors
from fednode.policies.gda import rows
from fednode.policies.gda.config import GDAConfig

SUMS: Final = "sums"
LOSSES: Final = "losses"
AGAIN: Final = 10
"""In each round whose number this divides, a node sends sums that did not change, too: a peer may
have missed them."""


class GDA(Method):
    """Sums and votes in mesh-wide rounds; see the file's header."""

    name: ClassVar[str] = "gda"
    config_type: ClassVar[type[GDAConfig]] = GDAConfig
    rounds: ClassVar[Mapping[str, Json]] = {"max": 0, "min_interval_s": 60.0}
    norm_checked: ClassVar[bool] = False
    personal: ClassVar[bool] = False
    state_bytes: ClassVar[int] = rows.STATE_BYTES
    stages: tuple[str, ...] = (SUMS, LOSSES)

    @property
    def drifts(self) -> bool:
        """Tell that nodes which differ may stay different: one may lack what a dead node sent."""
        return True

    def dtype(self, stage: str) -> Dtype:
        """Return float32: counts and sums lose too much in fewer bits."""
        return "float32"

    def used(self, state: MethodState) -> Tensors:
        """Return all contributions, with the node's own one as the node itself knows it.

        The node's own second moment never leaves it with `share: means`, nor do classes of too few
        images.
        """
        carry, shared = state.carry, state.shared
        own = {name: carry[PRIVATE + name] for name in rows.PRIVATES if PRIVATE + name in carry}
        if rows.OWN not in own:
            return shared
        held = own[rows.OWN][:, 0] > 0  # the carry names classes that are gone, too
        names = [name for name, here in zip(carry.classes, held, strict=True) if here]
        known = tuple(sorted({*shared.classes, *names}))
        kept = self._kept(shared)
        kept.pop(self.context.name, None)
        own[rows.OWN] = rows.aligned(own[rows.OWN], carry.classes, known)
        return Tensors({**self._common(shared), **rows.state_of(kept, known), **own}, known)

    @staticmethod
    def _kept(shared: Tensors) -> dict[str, rows.Kept]:
        return rows.kept_in(shared, shared.classes)

    @staticmethod
    def _common(shared: Tensors) -> dict[str, Array]:
        """Return the arrays that are no single sender's."""
        return {name: one for name, one in shared.items() if name in rows.COMMON}

    def using(self, state: MethodState, used: Tensors) -> MethodState:
        """Return a state with the contributions and the node's own arrays among `used`."""
        shared = {name: array for name, array in used.items() if name not in rows.PRIVATES}
        own = {PRIVATE + name: array for name, array in used.items() if name in rows.PRIVATES}
        held = replace(state, shared=Tensors(shared, used.classes))
        if not own:
            return held
        known = sorted({*used.classes, *state.carry.classes})
        own[PRIVATE + rows.OWN] = rows.aligned(own[PRIVATE + rows.OWN], used.classes, known)
        told = {name: one for name, one in state.carry.items() if name not in own}
        if (sent := told.get(PRIVATE + rows.SENT)) is not None:
            told[PRIVATE + rows.SENT] = rows.aligned(sent, state.carry.classes, known)
        return replace(held, carry=Tensors({**told, **own}, known))

    def job(self, now: Round) -> Job:
        """Compute sums, or losses with the contributions of all nodes as the reference."""
        if now.stage == SUMS:
            shared = now.draft.shared
            template = {name: shared[name] for name in (rows.ROWS, rows.MOMENT) if name in shared}
            return self.training(now, Tensors(template))
        tables = Tensors(dict.fromkeys(rows.TABLES, np.zeros(rows.TABLE)))
        return self.training(now, tables, self.used(now.draft))

    def contribution(self, now: Round, report: Report) -> Sent:
        """Return the sums with their classes, nothing if all hold them already, or the tables."""
        tensors = report.tensors
        names = (rows.ROWS, rows.MOMENT) if now.stage == SUMS else rows.TABLES
        told = Tensors({name: tensors[name] for name in names if name in tensors}, tensors.classes)
        known = now.stage == SUMS and now.number % AGAIN and self._holds(now.draft.shared, told)
        return Sent(EMPTY if known else told, now.draft)

    def _holds(self, shared: Tensors, told: Tensors) -> bool:
        """Tell whether the merged state has just these sums of this node."""
        kept = self._kept(shared).get(self.context.name)
        if kept is None or len(kept.classes) + kept.left != len(told.classes):
            return False
        sums = rows.aligned(told[rows.ROWS], told.classes, kept.classes)
        same = kept.moment is None or np.array_equal(
            told.get(rows.MOMENT, np.zeros(0)).astype(np.float32), kept.moment
        )
        return same and np.array_equal(sums, kept.rows)

    def merge(self, now: Round, given: Sequence[Contribution]) -> MethodState:
        """Return the newest contribution of each member, or the choice that all tables make."""
        draft = now.draft
        filled = [contribution for contribution in given if contribution.tensors]
        if now.stage == SUMS:
            return replace(draft, shared=self._newest(now, filled))
        if not filled:
            return draft
        choice = np.array(rows.choice([contribution.tensors for contribution in filled]))
        arrays = {**draft.shared, rows.CHOICE: choice.astype(np.float32)}
        return replace(draft, shared=Tensors(arrays, draft.shared.classes))

    def _newest(self, now: Round, given: Sequence[Contribution]) -> Tensors:
        before = now.draft.shared
        kept = self._kept(before)
        for contribution in given:
            told = contribution.tensors
            kept[contribution.sender] = rows.Kept(
                told.classes, told[rows.ROWS], told.get(rows.MOMENT)
            )
        members = {name: kept[name] for name in sorted(kept) if name in (now.members or kept)}
        stay = rows.fitting(members, self.config.share, self.config.classes_max)
        known = sorted({name for one in stay.values() for name in one.classes})
        return Tensors({**self._common(before), **rows.state_of(stay, known)}, known)

    def note(self, before: MethodState, after: MethodState) -> str:
        """Return whose classes have no room in a state, if that changed; else ""."""
        old, new = (rows.left_out(self._kept(one.shared)) for one in (before, after))
        if new == old:
            return ""
        if not new:
            return "the classes of all nodes have room again"
        return (
            f"{', '.join(new.values())} do not count: policy.classes_max has room for "
            f"{self.config.classes_max} of a node, and a state for {rows.CLASSES_MAX:,} of all"
        )

    # What peers may send --------------------------------------------------------------------------

    def fault(self, stage: str, held: MethodState, tensors: Tensors) -> str:
        """Return what is wrong with a contribution; "" if nothing is."""
        if not tensors:
            return ""
        if stage == LOSSES:
            return rows.table_fault(tensors)
        width, sends = held.shared[rows.ROWS].shape[1], {rows.ROWS}
        if self.config.share == "sums":
            sends |= {rows.MOMENT}
        if set(tensors) != sends:
            return (
                f"phase {stage!r} carries {', '.join(tensors)}; it takes {', '.join(sorted(sends))}"
            )
        wrong = rows.rows_fault(tensors[rows.ROWS], tensors.classes, width, 1.0)
        if wrong or rows.MOMENT not in tensors:
            return wrong
        images = float(tensors[rows.ROWS][:, 0].sum(dtype=np.float64))
        return rows.moment_fault(tensors[rows.MOMENT], images, width - 1)

    def state_fault(self, held: MethodState, packed: Tensors) -> str:
        """Return what is wrong with the state of a peer; "" if nothing is."""
        width = held.shared[rows.ROWS].shape[1]
        arrays = {name.removeprefix(SHARED): array for name, array in packed.items()}
        senders = {name for name in arrays if name.startswith((rows.NODE, rows.SECOND))}
        for name in set(arrays) - senders - {rows.LEFT, rows.CHOICE}:
            if name not in held.shared or arrays[name].shape != held.shared[name].shape:
                return f"{name} is no array of this policy's state"
        if rows.ROWS not in arrays:
            return f"{SHARED + rows.ROWS} is missing"
        if self.config.share == "means" and any(name.startswith(rows.SECOND) for name in senders):
            return "it has second moments, which no node sends here"
        choice = arrays.get(rows.CHOICE, np.zeros((len(rows.TABLES), 2)))
        if choice.shape != (len(rows.TABLES), 2) or (
            not ((choice >= 0) & (choice < np.array(rows.TABLE))).all()
        ):
            return "the choice names no ratio and temperature"
        if wrong := rows.state_fault(arrays, packed.classes, width):
            return wrong
        kept = rows.kept_in(arrays, packed.classes)
        stay = rows.fitting(kept, self.config.share, self.config.classes_max)
        fits = [(one.classes, one.left) for one in kept.values()]
        return (
            ""
            if fits == [(one.classes, one.left) for one in stay.values()]
            else ("it keeps more nodes or classes than a state has room for")
        )
