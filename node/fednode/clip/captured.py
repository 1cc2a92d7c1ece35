"""Passes of a frozen tower as CUDA graphs, which a GPU repeats without the host.

A step of prompt tuning runs several hundred small kernels, and the host needs longer to launch them
than a large GPU to run them (docs/speed.md). A pass over the same classes repeats the same kernels
with other numbers in the prompts. So after a few ordinary steps the forward and the backward pass
of a tower are recorded, and each later step copies the prompts in, replays both, and copies the
features and the gradients out. Losses and optimizers stay as they are.

A pass that cannot be recorded, such as one that waits for the GPU, runs as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
_ACTIVE: Final[ContextVar[Captures | None]] = ContextVar("captures", default=None)


class Recorder(Protocol):
    """A device that repeats work."""

    def warm(self, work: Callable[[], None]) -> None:
        """Run work as `record` will, so that libraries have set themselves up."""
        ...

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work; return a function that repeats it on the tensors that it used."""
        ...


class CudaRecorder:
    """Records work as a CUDA graph."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def warm(self, work: Callable[[], None]) -> None:
        """Run work on the stream that records."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                work()
            torch.cuda.current_stream().wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work; other threads may use the GPU meanwhile."""
        graph = torch.cuda.CUDAGraph()
        # A graph for itself: kernels of one that runs later may not use the memory of another.
        mode: Any = {"stream": self._stream, "capture_error_mode": "thread_local"}
        with torch.cuda.device(self._device), torch.cuda.graph(graph, **mode):
            work()
        return graph.replay


def recorder_of(device: torch.device) -> Recorder | None:
    """Return the recorder of a device; None: it repeats nothing."""
    real = device.type == "cuda" and torch.cuda.is_available()
    return CudaRecorder(device) if real else None


class Captures:
    """The recorded passes of one learner; they are used in the block of a `with` statement.

    Attributes:
        notes: why passes are not recorded, as sentences
    """

    def __init__(self, recorder: Recorder | None) -> None:
        """Take the recorder of the device; None: every pass runs as it is."""
        self._recorder = recorder
        self._known: dict[object, _Known] = {}
        self._tokens: list[Token[Captures | None]] = []
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Captures:
        self._tokens.append(_ACTIVE.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _ACTIVE.reset(self._tokens.pop())

    def run(self, owners: Sequence[object], work: Pass, given: Sequence[Tensor]) -> Any:
        """Return work(*given), from a recording if there is one that is free."""
        trained = torch.is_grad_enabled() and any(one.requires_grad for one in given)
        if self._recorder is None or not trained:
            return work(*given)
        known = self._of(owners, given)
        recorded = known.free() or self._recorded(self._recorder, known, work, given)
        return work(*given) if recorded is None else recorded(given)

    def forget(self) -> None:
        """Drop all recordings: the node's classes have changed."""
        self._known.clear()

    def drop(self) -> bool:
        """Free the memory of all recordings and record no more; tell whether there were any."""
        had = self._count > 0
        self.forget()
        if had:
            self._recorder = None
            self.notes = ("The GPU's memory ended, so steps run without CUDA graphs, more slowly.",)
        return had

    @property
    def _count(self) -> int:
        return sum(len(known.recorded) for known in self._known.values())

    def _of(self, owners: Sequence[object], given: Sequence[Tensor]) -> _Known:
        """Return what is known of a pass; forget the ordinary pass used longest ago."""
        shapes = ((tuple(one.shape), one.dtype, one.requires_grad) for one in given)
        key = (*map(id, owners), *shapes)
        known = self._known.pop(key, None) or _Known(tuple(owners))
        self._known[key] = known
        if len(self._known) > KNOWN_MOST:
            oldest = next(key for key, one in self._known.items() if not one.recorded)
            del self._known[oldest]
        return known

    def _recorded(
        self, recorder: Recorder, known: _Known, work: Pass, given: Sequence[Tensor]
    ) -> _Recorded | None:
        """Return a new recording of a pass; None if it has to run as it is."""
        known.passes += 1
        many = len(known.recorded) == AT_ONCE or self._count == GRAPHS_MOST
        if known.passes <= ORDINARY or known.refused or many:
            return None
        try:
            recorded = _Recorded(recorder, work, given)
        except RuntimeError as fault:  # of CUDA; the end of the memory is one, too
            known.refused = True
            first = str(fault).strip().splitlines()[:1] or [type(fault).__name__]
            self.notes = (f"Some steps run without CUDA graphs, more slowly: {first[0]}",)
            return None
        known.recorded.append(recorded)
        return recorded


def run(owners: Sequence[object], work: Pass, given: Sequence[Tensor]) -> Any:
    """Return work(*given), from a recording where a learner trains on a GPU.

    owners: the objects on which the result depends beside `given`; they may not change.
    """
    active = _ACTIVE.get()
    return work(*given) if active is None else active.run(owners, work, given)


@dataclass(slots=True)
class _Known:
    """A pass: what it belongs to (kept, so that no other object gets its id) and its recordings."""

    owners: tuple[object, ...]
    passes: int = 0
    refused: bool = False
    recorded: list[_Recorded] = field(default_factory=list)

    def free(self) -> _Recorded | None:
        return next((one for one in self.recorded if one.free), None)


class _Turn:
    """One replay of a forward pass; gone when nothing can ask for its backward pass any more."""

    __slots__ = ("__weakref__",)


class _Recorded:
    """A forward and a backward pass on tensors of their own."""

    def __init__(self, recorder: Recorder, work: Pass, given: Sequence[Tensor]) -> None:
        self._work = work
        self._given = [one.detach().clone().requires_grad_(one.requires_grad) for one in given]
        self._slopes: list[Tensor] = []
        self._turn: Callable[[], _Turn | None] = lambda: None
        recorder.warm(self._both)
        self._forward = recorder.record(self._run)
        self._backward = recorder.record(self._descend)

    @property
    def free(self) -> bool:
        """Tell whether no backward pass needs what the last forward pass left."""
        return self._turn() is None

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the results of the pass, which gradients flow through."""
        found: tuple[Tensor, ...] = _Replay.apply(self, *given)
        return found

    def forward(self, given: Sequence[Tensor]) -> tuple[_Turn, tuple[Tensor, ...], list[bool]]:
        """Return this turn, copies of the results, and which of them have gradients."""
        for own, one in zip(self._given, given, strict=True):
            own.detach().copy_(one)
        self._forward()
        turn = _Turn()
        self._turn = weakref.ref(turn)
        copies = tuple(one.detach().clone() for one in self._found)
        return turn, copies, [_moves(one) for one in self._found]

    def backward(self, turn: _Turn, slopes: Sequence[Tensor]) -> list[Tensor | None]:
        """Return copies of the gradients of what was given; slopes: of all results."""
        assert self._turn() is turn, "a recorded pass has one backward pass"
        moving = [slope for slope, one in zip(slopes, self._found, strict=True) if _moves(one)]
        for own, slope in zip(self._slopes, moving, strict=True):
            own.copy_(slope)
        self._backward()
        self._turn = lambda: None
        found = iter(self._gradients)
        of_each = [next(found) if _moves(one) else None for one in self._given]
        return [None if one is None else one.clone() for one in of_each]

    def _both(self) -> None:
        self._run()
        self._slopes = [torch.zeros_like(one) for one in self._found if _moves(one)]
        self._descend()

    def _run(self) -> None:
        with torch.enable_grad():
            self._found = self._work(*self._given)

    def _descend(self) -> None:
        self._gradients = torch.autograd.grad(
            [one for one in self._found if _moves(one)],
            [one for one in self._given if _moves(one)],
            self._slopes,
            allow_unused=True,
        )


def _moves(one: Tensor) -> bool:
    return one.requires_grad


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: _Recorded, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.recorded = recorded
        ctx.turn, copies, moving = recorded.forward(given)
        fixed = [one for one, moves in zip(copies, moving, strict=True) if not moves]
        ctx.mark_non_differentiable(*fixed)
        return copies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.recorded.backward(ctx.turn, slopes)
