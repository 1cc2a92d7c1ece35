"""Recorded passes give what ordinary ones give, in every order of forward and backward passes.

On a CPU a stand-in for torch.cuda.make_graphed_callables runs the work again in place of a CUDA
graph. Its inputs, results and gradients lie in tensors of its own, as those of a graph do, so a
result or a gradient that is taken too late is a wrong one here, too.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fednode.clip import cuda_graphs
from fednode.clip.cuda_graphs import AT_ONCE, ORDINARY, GraphedPasses, recorder_of

OWNER: Final = object()
DEVICES: Final = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Again:
    """A recorder of the CPU: it repeats work by running it. recorded: how often it recorded."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.recorded = 0
        self._fault = fault

    def __call__(self, work: Any, samples: tuple[Tensor, ...]) -> Any:
        if self._fault is not None:
            raise self._fault
        self.recorded += 1
        return partial(_Rerun.apply, _Static(work, samples))


class _Static:
    """The tensors of a recording: given, results and gradients."""

    def __init__(self, work: Any, samples: tuple[Tensor, ...]) -> None:
        self.work, self.given = work, samples
        self.results: list[Tensor] = []
        self.gradients: list[Tensor | None] = []

    def forward(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, one in zip(self.given, given, strict=True):
            own.detach().copy_(one)
        with torch.enable_grad():
            self.found = self.work(*self.given)
        self.results = self.results or [one.detach().clone() for one in self.found]
        for own, one in zip(self.results, self.found, strict=True):
            own.copy_(one.detach())
        return tuple(one.detach() for one in self.results)

    def backward(self, slopes: tuple[Tensor, ...]) -> list[Tensor | None]:
        moving = [at for at, one in enumerate(self.found) if one.requires_grad]
        wanted = [one for one in self.given if one.requires_grad]
        results, own = [self.found[at] for at in moving], [slopes[at] for at in moving]
        # A graph can be replayed again, so the graph of autograd stays.
        slack = {"allow_unused": True, "retain_graph": True}
        found = iter(torch.autograd.grad(results, wanted, own, **slack))
        fresh = [next(found) if one.requires_grad else None for one in self.given]
        if not self.gradients:
            self.gradients = [None if one is None else one.clone() for one in fresh]
        for kept, one in zip(self.gradients, fresh, strict=True):
            if kept is not None and one is not None:
                kept.copy_(one)
        return [None if one is None else one.detach() for one in self.gradients]


class _Rerun(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, static: _Static, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.static = static
        return static.forward(given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.static.backward(slopes)


def recorder(device: str) -> Any:
    return Again() if device == "cpu" else recorder_of(torch.device(device))


def cube(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return results whose gradients need what the forward pass left, and one without any."""
    return (x**3 * y).sum(dim=0), y.detach() * 2


def leaf(value: float, device: str = "cpu") -> Tensor:
    return torch.full((2, 3), float(value), device=device).requires_grad_()


def slope(found: Tensor, x: Tensor) -> float:
    (gradient,) = torch.autograd.grad(found.sum(), x)
    return float(gradient.flatten()[0])


@pytest.mark.parametrize("device", DEVICES)
def test_every_pass_has_the_results_and_gradients_of_its_own_numbers(device: str) -> None:
    y = torch.full((2, 3), 5.0, device=device)
    numbers, kept = range(1, 2 * ORDINARY + 2), []
    with GraphedPasses(recorder(device)) as captures:
        for number in numbers:
            x = leaf(number, device)
            found, fixed = cuda_graphs.run((OWNER,), cube, (x, y))
            assert fixed.flatten()[0] == 10
            assert slope(found, x) == 15 * number**2
            kept.append(float(found.detach()[0]))
        assert captures._count == 1
    assert kept == [10 * number**3 for number in numbers]


@pytest.mark.parametrize("device", DEVICES)
def test_losses_may_call_a_pass_several_times_before_they_descend(device: str) -> None:
    y, numbers = torch.full((2, 3), 5.0, device=device), range(1, AT_ONCE + 3)
    with GraphedPasses(recorder(device)) as captures:
        for _ in range(3 * ORDINARY):
            xs = [leaf(number, device) for number in numbers]
            found = [cuda_graphs.run((OWNER,), cube, (x, y))[0].sum() for x in xs]
            gradients = torch.autograd.grad(sum(found), xs)
            assert [float(one[0, 0]) for one in gradients] == [15 * at**2 for at in numbers]
        assert captures._count == AT_ONCE


def test_a_recording_has_one_backward_pass_and_is_free_if_its_result_is_gone() -> None:
    with GraphedPasses(Again()) as captures:
        for _ in range(2 * ORDINARY):
            cuda_graphs.run((OWNER,), cube, (leaf(2), torch.ones(2, 3)))
            gc.collect()
        assert captures._count == 1
        x = leaf(2)
        found, _ = cuda_graphs.run((OWNER,), cube, (x, torch.ones(2, 3)))
        torch.autograd.grad(found.sum(), x, retain_graph=True)
        with pytest.raises(AssertionError, match="has one backward pass"):
            torch.autograd.grad(found.sum(), x)


def test_other_shapes_owners_and_gradients_are_other_passes() -> None:
    with GraphedPasses(Again()) as captures:
        for _ in range(ORDINARY + 1):
            for owner in (OWNER, recorder):
                for rows in (1, 2):
                    x = torch.ones(rows, 3).requires_grad_()
                    for y in (torch.ones(rows, 3), torch.ones(rows, 3).requires_grad_()):
                        cuda_graphs.run((owner,), cube, (x, y))[0].sum().backward()
        assert captures._count == 8


def test_nothing_is_recorded_without_gradients_or_outside_of_training() -> None:
    recorder, x = Again(), leaf(2)
    captures = GraphedPasses(recorder)
    for _ in range(3 * ORDINARY):
        cuda_graphs.run((OWNER,), cube, (x, x))
        with captures, torch.no_grad():
            cuda_graphs.run((OWNER,), cube, (x, x))
        with captures:
            cuda_graphs.run((OWNER,), cube, (x.detach(), x.detach()))
    assert recorder.recorded == 0


def test_the_cpu_has_no_recorder() -> None:
    assert recorder_of(torch.device("cpu")) is None
    with GraphedPasses(None) as captures:
        for _ in range(2 * ORDINARY):
            cuda_graphs.run((OWNER,), cube, (leaf(2), leaf(2)))
    assert not captures.drop()
    assert captures.notes == ()


def test_a_pass_that_cannot_be_recorded_runs_as_it_is_and_the_learner_says_so() -> None:
    with GraphedPasses(Again(RuntimeError("operation not permitted\nmore"))) as captures:
        for _ in range(2 * ORDINARY):
            x = leaf(2)
            assert slope(cuda_graphs.run((OWNER,), cube, (x, torch.ones(2, 3)))[0], x) == 12
    assert captures._count == 0
    (note,) = captures.notes
    assert note == "Some steps run without CUDA graphs, more slowly: operation not permitted"


@pytest.mark.gpu
def test_a_pass_that_waits_for_the_gpu_runs_as_it_is() -> None:
    def waits(x: Tensor) -> tuple[Tensor]:
        return (x * float(x.sum().detach()),)

    with GraphedPasses(recorder("cuda")) as captures:
        for _ in range(2 * ORDINARY):
            x = leaf(2, "cuda")
            assert slope(cuda_graphs.run((OWNER,), waits, (x,))[0], x) == 12
            y = leaf(3, "cuda")
            one = torch.ones(2, 3, device="cuda")
            assert slope(cuda_graphs.run((OWNER,), cube, (y, one))[0], y) == 27
        assert captures._count == 1
    assert len(captures.notes) == 1


def test_recordings_are_bounded() -> None:
    most, known_most = cuda_graphs.GRAPHS_MOST, cuda_graphs.KNOWN_MOST
    owners = [object() for _ in range(known_most + 20)]
    with GraphedPasses(Again()) as captures:
        for _ in range(ORDINARY + 1):
            for owner in owners[: most + 5]:
                cuda_graphs.run((owner,), cube, (leaf(1), leaf(1)))[0].sum().backward()
        assert captures._count == most
        for owner in owners:
            cuda_graphs.run((owner,), cube, (leaf(1), leaf(1)))
        assert captures._count == most
        assert len(captures._known) <= known_most


def test_the_end_of_the_memory_drops_recordings_for_good() -> None:
    recorder = Again()
    captures = GraphedPasses(recorder)
    for dropped in (True, False):
        with captures:
            for _ in range(ORDINARY + 1):
                cuda_graphs.run((OWNER,), cube, (leaf(1), leaf(1)))[0].sum().backward()
        assert captures.drop() is dropped
        assert captures._count == 0
    assert recorder.recorded == 1
    assert captures.recorder is None, "a learner whose images change begins with none"
    assert captures.notes == (
        "The GPU's memory ended, so steps run without CUDA graphs, more slowly.",
    )
