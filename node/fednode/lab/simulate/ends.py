"""How a simulated run ended: whether all is well, a digest to compare code by, and a distance.

For each node, in the order of names, the digest covers: its life and its round, the prompts that it
holds and those that it tuned, its carry, its metrics, and the states of its peers as the node sees
them. It leaves out the data that a policy stores under names of its own, because a change of code
may rename them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from fednode.core.types import Tensors
from fednode.lab.sim.world import World
from fednode.lab.simulate.checkers import Violation

LENGTH: Final = 16


def digest(world: World) -> str:
    """Return 16 hexadecimal digits; equal runs give equal digits on machines of the same kind."""
    summed = hashlib.sha256()
    for name in sorted(world.hosts):
        kernel = world.hosts[name].kernel
        if kernel is None:
            summed.update(f"{name} is down\n".encode())
            continue
        view, state = kernel.view(), kernel.policy.state()
        held = [tensors.digest for tensors in (state.tensors, state.tuned, state.carry)]
        metrics = [f"{key}={value!r}" for key, value in sorted(view.metrics.items())]
        peers = [f"{peer.name}={peer.state}" for peer in view.peers]
        parts = [name, view.life, str(state.round), *held, *metrics, *peers]
        summed.update((" ".join(parts) + "\n").encode())
    return summed.hexdigest()[:LENGTH]


def consensus_distance(prompts: Sequence[Tensors]) -> float:
    """Return the root mean square distance of nodes' prompts from their mean, all arrays together.

    sqrt(mean_i |x_i - mean_j x_j|^2); 0 where all nodes hold the same; nan where their arrays
    differ in shape or in the classes of their rows.
    """
    if len({tensors.digest for tensors in prompts}) < 2:
        return 0.0
    if len({(tensors.classes, *tensors.shapes.items()) for tensors in prompts}) > 1:
        return float("nan")
    total = 0.0
    for name in prompts[0]:
        stack = np.stack([tensors[name] for tensors in prompts]).astype(np.float64)
        total += float(np.square(stack - stack.mean(axis=0)).sum()) / len(prompts)
    return float(np.sqrt(total))


def well(world: World, honest: Sequence[str]) -> bool:
    """Tell whether every honest node has finished and sees all others as alive."""
    if any(host.kernel is None for host in world.hosts.values()):
        return False
    for name in honest:
        view = world.kernel(name).view()
        seen = {peer.name for peer in view.peers if peer.state == "alive"}
        if view.life != "finished" or not seen >= {*honest} - {name}:
            return False
    return True


def unwell(world: World, honest: Sequence[str]) -> str:
    """Return what every honest node does and sees, as words."""
    parts = []
    for name in honest:
        view = world.kernel(name).view()
        states = ", ".join(f"{peer.name} {peer.state}" for peer in view.peers)
        where = f"{name} is {view.life} ({view.activity}) in round {view.round}"
        parts.append(f"{where}, sees {states}")
    return f"not well {world.now:.0f} s after the start: " + "; ".join(parts)


def agreed(world: World) -> None:
    ends = {name: world.kernel(name).policy.state().tensors.digest[:8] for name in world.hosts}
    if len(set(ends.values())) > 1:
        raise Violation("AllAgree", f"nodes ended with different prompts: {ends}")
