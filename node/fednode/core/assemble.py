"""Assemble a node's kernel from what its host knows. Every host does it here.

The daemon and the simulator make kernels; the contract suite for policies makes a policy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fednode.core.facts import fingerprint
from fednode.core.kernel import Kernel
from fednode.core.policy import NodeContext, Policy, PolicyKind
from fednode.core.reputation import Tolerance
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
    account: Account | None = None,
) -> Kernel:
    """Return the kernel of a node that starts, new or restored.

    The context's policy, fingerprint, mode and largest norm are filled in here.

    initial: returns the node's initial prompts for a seed. facts: the settings that all nodes must
    agree on. held: the snapshot on disk; None to start at round 0. account: what the node's
    privacy account says.
    """
    tolerance = tolerance or Tolerance()
    first, checked = initial(context.start_seed), getattr(kind, "norm_checked", True)
    context = replace(
        context,
        policy=kind.name,
        fingerprint=fingerprint(facts),
        rounds=replace(context.rounds, mode=context.rounds.mode or kind.default_mode),
        norm_max=tolerance.norm_ratio * max(1.0, first.norm()) if checked else math.inf,
    )
    return Kernel(
        context,
        policy_of(context, kind, config, first, None if held is None else held.policy),
        facts,
        timing,
        held,
        tolerance,
        anew=lambda state: kind.restore(config, context, state),
        account=account,
    )


def policy_of(
    context: NodeContext, kind: PolicyKind, config: Any, initial: Tensors, held: PolicyState | None
) -> Policy:
    """Return a node's policy: at round 0 with initial tensors, or as it was stored."""
    if held is None:
        return kind.start(config, context, initial)
    return kind.restore(config, context, held)
