"""What a node of policy gda would find out in its first round: sums it may not send or keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from fednode.app.plan import SUMS, NodePlan
from fednode.learn.learner import Learner, told

STATE_BYTES: Final = 60 << 20
"""Most bytes of all nodes' sums, as in policies/gda/rows.py."""
CLASSES_MAX: Final = 4096
"""Most classes that a message names, as in policies/gda/rows.py."""
ENOUGH: Final = 4
"""Images for each dimension that `policy.share: sums` needs, as in policies/gda/rows.py."""


def findings(plan: NodePlan, learner: Learner) -> Iterator[tuple[Literal["fault", "warning"], str]]:
    """Yield what is wrong with this node's class sums, for `fednode check`."""
    if fault := sums_fault(plan, learner):
        yield "fault", fault
    elif warning := sums_warning(plan, learner):
        yield "warning", warning


def sums_fault(plan: NodePlan, learner: Learner) -> str:
    """Return why class sums of this node's images cannot be sent or kept; "" if they can.

    The node would find out in its first round. A learner of formulas has no images.
    """
    if plan.policy.name != SUMS or plan.settings.tuning.kind != "torch":
        return ""
    names, images = told(learner)
    first, nodes = learner.initial(0), len(plan.peers.peers)
    dimensions, moment = first["rows"].shape[1] - 1, first.get("moment")
    needed = ENOUGH * dimensions
    if moment is not None and images < needed:
        return (
            f"policy.share is 'sums', and this node would send sums over {images} images; from "
            f"fewer than {needed} (four times the {dimensions} dimensions of the model's features) "
            "members could find the images themselves: add images, or set policy.share to means on "
            "all nodes."
        )
    if len(names) > CLASSES_MAX:
        return (
            f"This node has {len(names):,} classes, and a message names at most {CLASSES_MAX:,}, "
            "so its peers would get nothing of it: name the classes to use in data.classes."
        )
    each = 4 * (len(names) * (2 + dimensions) + (0 if moment is None else moment.size))
    if each * nodes <= STATE_BYTES:
        return ""
    return (
        f"peers.yaml lists {nodes} nodes, and the sums of {nodes} nodes with {len(names)} classes "
        f"take {each * nodes >> 20} MiB; a late node takes over at most {STATE_BYTES >> 20} MiB: "
        "set policy.share to means, take fewer classes or nodes, or another policy."
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
