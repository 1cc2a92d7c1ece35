"""Passes of a frozen tower as CUDA graphs, which a GPU repeats without the host.

A step of prompt tuning runs several hundred small kernels, and the host needs longer to launch them
than a large GPU to run them (docs/speed.md). So after a few ordinary passes over the same classes
torch.cuda.make_graphed_callables records the forward and the backward pass, and later passes replay
both. A pass that cannot be recorded, such as one that waits for the GPU, runs as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, Final
from weakref import WeakSet

import torch
from torch import Tensor

ORDINARY: Final = 4
"""Passes over the same classes and shapes before one is recorded: few steps are not worth it."""
GRAPHS_MOST: Final = 16
"""Recorded passes; each keeps its activations in the memory of the GPU."""
AT_ONCE: Final = 3
"""Recordings of one pass, for losses that call it several times before their backward pass."""
KNOWN_MOST: Final = 64
"""Different passes that are counted; Fed-DPT has one for the classes of each batch."""

Pass = Callable[..., tuple[Tensor, ...]]
"""Return tensors that depend on the given tensors alone; it may not wait for the GPU."""
_ACTIVE: Final[ContextVar[GraphedPasses | None]] = ContextVar("graphed passes", default=None)


def recorder_of(device: torch.device) -> Callable[..., Pass] | None:
    """Return what records a pass with sample tensors; None: the device repeats nothing."""
    if device.type != "cuda":
        return None
    graphed: Any = partial(torch.cuda.make_graphed_callables, allow_unused_input=True)
    if "capture_error_mode" in signature(graphed).parameters:  # not in every version of torch
        graphed = partial(graphed, capture_error_mode="thread_local")  # others may use the GPU

    def record(work: Pass, samples: tuple[Tensor, ...]) -> Any:
        with torch.cuda.device(device):
            return graphed(work, samples)

    return record


class GraphedPasses:
    """The recorded passes of one learner; they are used in the block of a `with` statement.

    recorder: of the device; None: every pass runs as it is. notes: why passes are not recorded.
    """

    def __init__(self, recorder: Callable[..., Pass] | None) -> None:
        self.recorder, self._count = recorder, 0
        self._known: dict[tuple[object, ...], _Known] = {}
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> GraphedPasses:
        self._token = _ACTIVE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _ACTIVE.reset(self._token)

    def run(self, owners: Sequence[object], work: Pass, given: Sequence[Tensor]) -> Any:
        """Return work(*given), from a recording if there is one that is free."""
        moving = torch.is_grad_enabled() and any(one.requires_grad for one in given)
        if self.recorder is None or not moving:
            return work(*given)
        shapes = ((tuple(one.shape), one.dtype, one.requires_grad) for one in given)
        known = self._known.setdefault((*owners, *shapes), _Known())
        if len(self._known) > KNOWN_MOST:
            self._known = {key: one for key, one in self._known.items() if one.graphs}
        known.passes += 1
        # No backward pass needs what their last forward pass left.
        free = (one for one in known.graphs if not any(replay.left for replay in one.replays))
        graph = next(free, None)
        few = len(known.graphs) < AT_ONCE and self._count < GRAPHS_MOST
        if graph is None and few and known.passes > ORDINARY and not known.refused:
            samples = (one.detach().clone().requires_grad_(one.requires_grad) for one in given)
            try:
                graph = _Graph(self.recorder(work, tuple(samples)))
                known.graphs.append(graph)
                self._count += 1
            except RuntimeError as fault:  # of CUDA; the end of the memory is one, too
                known.refused = True
                first = (str(fault).strip() or type(fault).__name__).partition("\n")[0]
                self.notes = (f"Some steps run without CUDA graphs, more slowly: {first}",)
        return work(*given) if graph is None else graph(given)

    def drop(self) -> bool:
        """Free the memory of all recordings and record no more; tell whether there were any."""
        if had := self._count > 0:
            self.recorder, self._count = None, 0
            self._known.clear()
            self.notes = ("The GPU's memory ended, so steps run without CUDA graphs, more slowly.",)
        return had


def run(owners: Sequence[object], work: Pass, given: Sequence[Tensor]) -> Any:
    """Return work(*given), from a recording where a learner trains on a GPU.

    owners: what the result depends on beside `given`; they may not change, or equal other objects.
    """
    active = _ACTIVE.get()
    return work(*given) if active is None else active.run(owners, work, given)


@dataclass(slots=True)
class _Known:
    """A pass: how often it ran, whether it cannot be recorded, and its recordings."""

    passes: int = 0
    refused: bool = False
    graphs: list[_Graph] = field(default_factory=list)


@dataclass(eq=False)
class _Replay:
    """One replay of a forward pass; gone when nothing can ask for its backward pass any more."""

    left: int  # gradients that its backward pass has yet to give

    def __call__(self, gradient: Tensor) -> Tensor:
        """Take a gradient of the backward pass and return a copy of it."""
        assert self.left, "a recorded pass has one backward pass"
        self.left -= 1
        return gradient.clone()


@dataclass(eq=False)
class _Graph:
    """A recorded pass; its results and gradients are copied, as the next replay reuses them."""

    recorded: Pass
    replays: WeakSet[_Replay] = field(default_factory=WeakSet)

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        copies: list[Any] = [one.clone() for one in given]
        moving = [copy for copy in copies if copy.requires_grad]
        replay = _Replay(len(moving))
        self.replays.add(replay)
        for copy in moving:
            copy.register_hook(replay)
        return tuple(one.clone() for one in self.recorded(*copies))
