"""Assemble a node's kernel from what its host knows. Every host does it here.

The daemon and the simulator make kernels; the contract suite for policies makes a policy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fednode.core.documents import Documents
from fednode.core.facts import fingerprint
from fednode.core.kernel import Kernel
from fednode.core.policy import NodeContext, Policy, PolicyKind
from fednode.core.reputation import Tolerance
from fednode.core.run import Parts, Under, no_parts
from fednode.core.settings import LAN, Timing
from fednode.core.types import Account, PolicyState, Snapshot, Tensors


def kernel_of(
    context: NodeContext,
    kind: PolicyKind,
    config: Any,
    initial: Callable[[int], Tensors],
    facts: Mapping[str, str],
    held: Snapshot | None,
    timing: Timing = LAN,
    tolerance: Tolerance | None = None,
    beginning: PolicyState | None = None,
    account: Account | None = None,
    documents: Documents | None = None,
    under: Under = no_parts,
) -> Kernel:
    """Return the kernel of a node that starts, new or restored.

    The context's policy, fingerprint, mode and largest norm are filled in here.

    documents, under: the settings documents that the node knows, and what it runs with under them.
    initial: returns the node's initial prompts for a seed. facts: the settings that all nodes must
    agree on. held: the snapshot on disk; None to start at round 0. beginning: the state at round 0
    of a node that began from other than the initial prompts. account: what the node's privacy
    account says.
    """
    tolerance = tolerance or Tolerance()
    state = None if held is None else held.policy
    parts = parts_of(context, kind, config, initial, facts, state, tolerance, beginning)
    return Kernel(
        parts.context,
        parts.policy,
        parts.facts,
        timing,
        held,
        tolerance,
        anew=parts.anew,
        account=account,
        documents=documents,
        under=under,
    )


def parts_of(
    context: NodeContext,
    kind: PolicyKind,
    config: Any,
    initial: Callable[[int], Tensors],
    facts: Mapping[str, str],
    held: PolicyState | None,
    tolerance: Tolerance | None = None,
    beginning: PolicyState | None = None,
    *,
    begins: bool = False,
) -> Parts:
    """Return what a kernel runs with; parameters as in kernel_of.

    begins: the rounds begin anew with these parts, whatever is held.
    """
    first, checked = initial(context.start_seed), getattr(kind, "norm_checked", True)
    ratio = (tolerance or Tolerance()).norm_ratio
    context = replace(
        context,
        policy=kind.name,
        fingerprint=fingerprint(facts),
        rounds=replace(context.rounds, mode=context.rounds.mode or kind.default_mode),
        norm_max=ratio * max(1.0, first.norm()) if checked else math.inf,
    )
    return Parts(
        context=context,
        policy=policy_of(context, kind, config, first, None if begins else held),
        facts=facts,
        anew=lambda held=None: policy_of(context, kind, config, first, held or beginning),
        begins=begins,
    )


def beginning_of(held: Snapshot, parts: Parts) -> Snapshot:
    """Return the beginning of a run under a settings document, for a host that stopped before it.

    held: the last snapshot of the run before.
    """
    return Snapshot(
        parts.anew().state(),
        {},
        redone=held.redone + 1,
    )


def policy_of(
    context: NodeContext, kind: PolicyKind, config: Any, initial: Tensors, held: PolicyState | None
) -> Policy:
    """Return a node's policy: at round 0 with initial tensors, or as it was stored."""
    if held is None:
        return kind.start(config, context, initial)
    return kind.restore(config, context, held)
