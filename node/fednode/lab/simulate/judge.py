"""What must hold of a simulated mesh once all faults have ended."""

from __future__ import annotations

from collections.abc import Sequence

from fednode.lab.sim.world import World
from fednode.lab.simulate.check import Violation


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
        where = f"{name} is {view.life} ({view.phase}) in round {view.round}"
        parts.append(f"{where}, sees {states}")
    return f"not well {world.now:.0f} s after the start: " + "; ".join(parts)


def agreed(world: World) -> None:
    """Raise Violation if nodes ended with different prompts."""
    ends = {name: world.kernel(name).policy.state().tensors.digest[:8] for name in world.hosts}
    if len(set(ends.values())) > 1:
        raise Violation("AllAgree", f"nodes ended with different prompts: {ends}")
