"""Bugs of the kernel and of membership to plant, each of which one checker finds and no other.

Each function patches shipped code as a hasty change would make it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fednode.core import kernel
from fednode.core.events import Adopt, Adopted, Send, SetTimer, Tune
from fednode.core.members import swim

Patch = pytest.MonkeyPatch


def a_node_compares_lists_with_itself(patch: Patch) -> None:
    """A node draws itself, too, when it draws a member."""
    original = swim.Swim.timer

    def timer(self: Any, name: str) -> Any:
        itself = [self._ask_list(self._context.name)] if name == swim.PROBE else []
        return [*original(self, name), *itself]

    patch.setattr(swim.Swim, "timer", timer)


def a_list_is_passed_on_as_it_came(patch: Patch) -> None:
    """A node that is asked for its list answers in the name of the node that asked."""
    original: Any = swim.Swim._lists

    def lists(self: Any, message: Any) -> Any:
        return [
            replace(one, message=replace(one.message, sender=message.sender))
            for one in original(self, message)
        ]

    patch.setattr(swim.Swim, "_lists", lists)


def each_message_leaves_a_timer(patch: Patch) -> None:
    """Each message gets a timer of its own, which nobody cancels."""
    original = kernel.Kernel._receive

    def receive(self: Any, now: float, message: Any, token: int) -> Any:
        return [*original(self, now, message, token), SetTimer(f"kernel.seen.{token}", 60.0)]

    patch.setattr(kernel.Kernel, "_receive", receive)


def a_timer_is_set_for_the_past(patch: Patch) -> None:
    """The seconds until the next round are counted from its beginning, and may have passed."""
    original = kernel.Kernel._adopted

    def adopted(self: Any, now: float, *given: Any) -> Any:
        waited = self._pace._began - now
        return [*original(self, now, *given), SetTimer("kernel.interval", waited)]

    patch.setattr(kernel.Kernel, "_adopted", adopted)


def a_job_is_handed_out_twice(patch: Patch) -> None:
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        effects = original(self, now, event)
        return [*effects, *(one for one in effects if isinstance(one, Tune))]

    patch.setattr(kernel.Kernel, "step", step)


def a_round_is_told_before_it_is_stored(patch: Patch) -> None:
    """With the commit of a round goes the first message of the round after the next."""
    original = kernel.Kernel.step

    def step(self: Any, now: float, event: Any) -> Any:
        effects = original(self, now, event)
        if not any(isinstance(one, Adopt) for one in effects):
            return effects
        early = self.context.message(self.policy.state().round + 1, "prompts")
        return [*effects, *(Send(peer, early) for peer in sorted(self._linked))]

    patch.setattr(kernel.Kernel, "step", step)


def a_round_is_stored_again(patch: Patch) -> None:
    """Once each node stores a round a second time, after the disk has taken it."""
    original, stored = kernel.Kernel.step, set[str]()

    def step(self: Any, now: float, event: Any) -> Any:
        effects, name = original(self, now, event), self.context.name
        if not isinstance(event, Adopted) or name in stored:
            return effects
        stored.add(name)
        return [*effects, Adopt(event.snapshot)]

    patch.setattr(kernel.Kernel, "step", step)
