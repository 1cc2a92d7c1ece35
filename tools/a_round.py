"""Write docs/a-round.txt: one round of three nodes and one catch-up, as the simulator plays them.

Run `python -m tools.a_round`; with --check it only compares the file with what it would write.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fednode import registry
from fednode.core import events as ev
from fednode.core.members.phases import PHASES
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import MEASURE, Job, Message
from fednode.learn.closed_form import ClosedFormLearner
from fednode.sim.setup import Setup
from fednode.sim.world import World

FILE = Path(__file__).resolve().parent.parent / "docs" / "a-round.txt"
NAMES = "abc"
HEAD = """\
A round of three nodes, and a catch-up
======================================

`python -m tools.a_round` wrote this file; a test compares it. Three nodes, a, b and c, run
PromptFL in the simulator (node/fednode/sim). A tuning takes 0.2 s, a message 0.01 s, a commit no
time. Each block is one step of one node:

    seconds  node  the event that the node takes
                     -> an effect that it asks the host for, in this order

The file leaves out acknowledgements, and the messages and timers by which nodes watch each other
(docs/membership.md). It leaves out a step without effects, unless the step takes a message of the
policy.
"""
ROUND = """
1. A round
----------

Each node tunes, sends its contribution to both others, and waits for theirs. When it has both,
and both peers have its own, it merges the three, measures the result and adopts it.
"""
CATCH_UP = """
2. A catch-up
-------------

Node c was switched off during round 2 and missed some rounds. Now it is switched on again and
begins round 2. The messages of a and b show that both are further ahead. Node c asks one of them
for its state (want, state) and the other one whether it holds the same (witness, vouch). Both
hold it, which is at least half of the members and at least two others. No round waits for this: c
ends its tuning, then adopts that state in the others' round.
"""


class Story:
    """A checker of the simulator that writes down what it sees."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sent: Counter[tuple[str, str]] = Counter()
        self.on = False

    def started(self, world: World, name: str) -> None:
        """Write that a node was switched on."""
        if self.on:
            self.lines.append(f"{world.now:9.3f}  {name}  switched on")

    def stepped(
        self, world: World, name: str, event: ev.Event, effects: Sequence[ev.Effect]
    ) -> None:
        """Write one step of a node, if it has effects to show."""
        shown = [text for one in effects if (text := _effect(one))]
        arrives = isinstance(event, ev.Received) and event.message.phase not in PHASES
        if not self.on or not (shown or arrives):
            return
        self.lines.append(f"{world.now:9.3f}  {name}  {_event(event)}")
        self.lines += [f"{'':16}-> {text}" for text in shown]
        for one in effects:
            if isinstance(one, ev.Send) and one.message.phase not in PHASES:
                self.sent[name, one.message.phase] += 1

    def told(self) -> str:
        """Return the steps and the number of messages of each node since the last call."""
        phases = sorted({phase for _, phase in self.sent})
        rows = [f"    {'messages':10}" + "".join(f"{phase:>9}" for phase in phases)]
        for name in NAMES:
            counts = "".join(f"{self.sent[name, phase]:9}" for phase in phases)
            rows.append(f"    {name:10}{counts}")
        found = "\n".join([*self.lines, "", *rows]) + "\n"
        self.lines, self.sent = [], Counter()
        return found


def _message(one: Message) -> str:
    told = {} if one.phase in PHASES else one.facts
    facts = "".join(f", {key} {value[:8]}" for key, value in sorted(told.items()))
    carried = "" if not one.tensors else f", prompts {one.tensors.digest[:8]}"
    return f"{one.phase} of round {one.round}{facts}{carried}"


def _job(job: Job) -> str:
    return f"{'measurement' if job.stage == MEASURE else 'tuning'} of round {job.round}"


def _event(event: ev.Event) -> str:
    match event:
        case ev.Received(message=message):
            return f"Received from {message.sender}: {_message(message)}"
        case ev.Delivered(to=peer, message=message):
            return f"Delivered to {peer}: {message.phase} of round {message.round}"
        case ev.Tuned(job=job):
            return f"Tuned: {_job(job)}"
        case ev.Adopted(snapshot=snapshot):
            return f"Adopted: round {snapshot.policy.round} is on disk"
        case ev.TimerFired(name=name):
            return f"TimerFired: {name}"
        case _:
            return type(event).__name__


def _effect(effect: ev.Effect) -> str:
    """Return an effect in words; "" if it is left out."""
    match effect:
        case ev.Send(to=peer, message=message) if message.phase not in PHASES:
            return f"Send to {peer}: {_message(message)}"
        case ev.Tune(job=job):
            return f"Tune: {_job(job)}"
        case ev.Adopt(snapshot=snapshot, givers=givers):
            policy, merged = snapshot.policy, f", merged with {', '.join(givers)}" if givers else ""
            return f"Adopt: round {policy.round}, prompts {policy.tensors.digest[:8]}{merged}"
        case ev.SetTimer(name=name, delay_s=delay) if name.startswith("policy."):
            return f"SetTimer: {name} in {delay:g} s"
        case ev.CancelTimer(name=name) if name.startswith("policy."):
            return f"CancelTimer: {name}"
        case ev.Record(kind=kind, text=text) if kind.startswith("round."):
            return f"Record {kind}: {text}"
        case _:
            return ""


def story() -> str:
    """Play the round and the catch-up; return the text of the file."""
    told = Story()
    world = World(1, (0.01, 0.01))
    world.checkers = [told]
    kind = registry.policy("promptfl")
    rounds = RoundSettings("sync", 40, start=StartSettings(len(NAMES) - 1))
    plan = Setup(policy=kind, config=kind.config_type(), rounds=rounds)
    world.place(plan, {name: ClosedFormLearner(name, 1, 2) for name in NAMES})

    def reached(name: str, number: int) -> bool:
        return world.kernel(name).view().round >= number

    told.on = True
    world.start(*NAMES)
    world.run(lambda: all(world.kernel(name).policy.round >= 1 for name in NAMES), 60.0)
    first, told.on = told.told(), False
    world.crash("c")
    world.run(lambda: reached("a", 9), 600.0)
    told.on = True
    world.start("c")
    world.run(lambda: world.kernel("c").policy.round >= 2, 60.0)
    return f"{HEAD}{ROUND}\n{first}{CATCH_UP}\n{told.told()}"


def main(words: Sequence[str]) -> int:
    """Write the file, or compare it; return the exit code."""
    text = story()
    if "--check" not in words:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{FILE} is not what the simulator plays: run python -m tools.a_round.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
