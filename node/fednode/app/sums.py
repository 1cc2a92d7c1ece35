"""What a node of policy gda would find out in its first round: classes that it cannot send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fednode.app.plan import SUMS, NodePlan
from fednode.learn.learner import Learner, told
from fednode.policies.class_sums import CLASSES_MAX


def findings(plan: NodePlan, learner: Learner) -> Iterator[tuple[Literal["fault", "warning"], str]]:
    """Yield what is wrong with this node's class sums, for `fednode check`."""
    if fault := sums_fault(plan, learner):
        yield "fault", fault
    elif warning := sums_warning(plan, learner):
        yield "warning", warning


def sums_fault(plan: NodePlan, learner: Learner) -> str:
    """Return why class sums of this node's images cannot be sent; "" if they can.

    The node would find out in its first round. A learner of formulas has no images.
    """
    names, _ = told(learner)
    silent = plan.policy.name != SUMS or plan.settings.tuning.kind != "torch"
    if silent or len(names) <= CLASSES_MAX:
        return ""
    return (
        f"This node has {len(names):,} classes, and a message names at most {CLASSES_MAX:,}, "
        "so its peers would get nothing of it: name the classes to use in data.classes."
    )


def sums_warning(plan: NodePlan, learner: Learner) -> str:
    """Return that this node sends no class, or more classes than count; "" if neither is so."""
    least = plan.settings.privacy.least_images
    silent = plan.policy.name == SUMS and plan.settings.tuning.kind == "torch"
    if not silent or not learner.samples:
        return ""
    if sent := len(told(learner)[0]):
        most = plan.policy.config.classes_max
        if sent <= most:
            return ""
        return (
            f"This node has {sent:,} classes, and policy.classes_max is {most:,}: its peers leave "
            "out the others, unless half of the nodes have as many. Set it higher on all nodes, or "
            "name the classes to use in data.classes."
        )
    return (
        f"None of this node's {len(learner.classes)} classes has privacy.least_images ({least}) "
        "training images, so the node sends no sums and its peers learn nothing from it: add "
        "images, raise data.shots, or lower privacy.least_images."
    )
