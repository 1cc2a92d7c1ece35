"""Whole kernels of each policy, of which one says what it likes: none ends, and none is slow.

Each message of the liar comes with up to four that hold other phases, arrays, facts, numbers and
news of members, valid for the codec and most of them for nothing else.
"""

from __future__ import annotations

import random
import re
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from fednode import core, registry
from fednode.core.policy import Policy
from fednode.core.rounds.catchup import QUESTIONS
from fednode.core.rounds.exchange import AGAIN
from fednode.core.rounds.statements import STATEMENT
from fednode.core.types import ARRAYS, PHASES, SHARED, STANDINGS, MemberUpdate, Message, Tensors
from fednode.lab.sim.host import Liar
from fednode.lab.sim.world import World
from fednode.lab.simulate.checkers import KeepsWithinBounds
from fednode.policies.class_sums import rows_fault
from fednode.policies.gda import GDA
from tests.contract.seeds import seeds
from tests.unit.lab.sim.meshes import KINDS, NAMES, Kind, mesh

LIAR: Final = NAMES[-1]
MESH_S: Final = 60.0
GROWTH_KIB: Final = 256 * 1024
PLAIN: Final = ("fedclip", "fedmaple", "fedotp", "fedpgp", "fedtpg", "local", "zerodfl")
POLICIES: Final = {
    **KINDS,
    **{
        name: Kind(registry.policy(name), registry.policy(name).config_type(), {"context": (4, 3)})
        for name in PLAIN
    },
}
FACTS: Final = sorted(
    {"of", "digest", "adopted", "late/a", "late/", "count", "target", "policy.name"}.union(
        *(
            re.findall(r'Final = "([a-z][a-z_./-]{0,20})"', path.read_text())
            for path in Path(core.__path__[0]).rglob("*.py")
        )
    )
)
WORDS: Final = ("", "0", "1", "-1", "9" * 19, "yes", "a", "zz", "64 0 1 63", "1 2 3", "0 0", "²")
WORDS_LONG: Final = ("0" * 512, "f" * 16, "1e5", "nan", "a b c", "1.5", "\u0661", " ", "a=1")
SIZES: Final = (0, 0, 1, 2, 3, 4, 5, 8, 12, 16, 33)
NUMBERS: Final = (0.0, 1.0, -1.0, 1e30, 3e38, -0.0, 1e-45, 0.5, np.nan, np.inf)
WHOLE: Final = (0, 1, 2, 2**31, 2**63 - 1)
PLACES: Final = ("", "a", "127.0.0.1:1", "::", "x" * 300, "host:0", "[::1]:99999")
ARRAYS_OF_NOBODY: Final = ("rows/d", "rows/", "shared/rows/d", "shared/zz", "own/x", "x")


def arrays(draw: random.Random, policy: Policy, said: Tensors) -> Tensors:
    """Return arrays of the policy's names or others, of any shape and of any numbers."""
    held = policy.state().tensors
    names = [*held, *policy.state().arrays, "rows", "moment", "context"]
    pool = [*names, *ARRAYS_OF_NOBODY, *(way + name for way in (SHARED, ARRAYS) for name in names)]
    made: dict[str, Any] = dict(said) if draw.random() < 0.5 else {}
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        name = draw.choice(list(said) if said and draw.random() < 0.3 else pool)
        like = said.get(name, held.get(name.removeprefix(SHARED)))
        shape = tuple(draw.choices(SIZES, k=draw.choice((0, 1, 1, 2, 2, 3, 4))))
        shape = like.shape if like is not None and draw.random() < 0.5 else shape
        noise = np.random.default_rng(draw.getrandbits(30)).normal(size=shape)
        made[name] = np.full(shape, draw.choice(NUMBERS)) if draw.random() < 0.7 else noise
    names_of_classes = draw.choice(((), ("a",), ("a", "b"), said.classes, ("x y",)))
    return Tensors(made, names_of_classes if made else ())


def twisted(draw: random.Random, message: Message, policy: Policy) -> Message:
    """Return a message of the liar with anything else in it."""
    stages = getattr(getattr(policy, "method", None), "stages", ("prompts", "done", STATEMENT))
    phases = [message.phase, *stages, *stages, *sorted(PHASES), *sorted(QUESTIONS), AGAIN, "state"]
    facts = dict(message.facts) if draw.random() < 0.5 else {}
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        facts[draw.choice(FACTS)] = draw.choice(WORDS + WORDS_LONG)
    news = tuple(
        MemberUpdate(
            draw.choice((*NAMES, "zz", "e")),
            draw.choice(STANDINGS),
            draw.choice(WHOLE),
            draw.choice(PLACES),
            draw.choice(("", "zz")),
            draw.choice((b"", b"x" * 10)),
        )
        for _ in range(draw.choice((0, 1, 2, 5)))
    )
    near = policy.round + draw.choice((-1, 0, 1, 2, 17))
    return replace(
        message,
        phase=draw.choice(phases),
        tensors=arrays(draw, policy, message.tensors) if draw.random() < 0.7 else message.tensors,
        facts=facts,
        round=draw.choice((message.round, message.round + 1, max(0, near), *WHOLE)),
        members=news if draw.random() < 0.3 else message.members,
        boot=draw.choice((message.boot, "", "00000000", "ffffffff")),
        active=draw.choice((message.active, True, False)),
        samples=draw.choice((message.samples, *WHOLE)),
        base=draw.choice((message.base, "", "00", "f" * 64)),
        dtype=draw.choice((message.dtype, "float32")),
    )


def attacked(kind: Kind, seed: int) -> World:
    """Return what became of a mesh in which one node lies."""
    draw = random.Random(seed)
    world = mesh(kind, seed, most=6, deadline_s=draw.choice((2.0, 20.0)))
    world.checkers = [KeepsWithinBounds(liars=(LIAR,))]

    def say(to: str, message: Message) -> list[tuple[str, Message]]:
        policy = world.kernel(NAMES[0]).policy
        true = [(to, message)] if draw.random() < 0.6 else []
        false = [
            (draw.choice(NAMES[:-1]), twisted(draw, message, policy))
            for _ in range(draw.choice((0, 1, 1, 2, 4)))
        ]
        return [*true, *false]

    def answer(_: str, __: Message, code: Any, detail: str) -> tuple[Any, str]:
        codes = (code, code, "ok", "busy", "refused", "stale", "invalid")
        return draw.choice(codes), draw.choice((detail, "", "x" * 900))

    world.hosts[LIAR].liar = Liar(say, answer)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    world.run(world.finished, 200.0)
    assert time.perf_counter() - began < MESH_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB
    return world


def defects(world: World) -> list[str]:
    return [
        f"{name}: {one.text}: {one.cause!r}"
        for name, host in world.hosts.items()
        for one in host.records
        if one.cause is not None and name != LIAR
    ]


@pytest.mark.parametrize("seed", seeds(8, 1000))
def test_no_message_ends_a_node(seed: int) -> None:
    world = attacked(sorted(POLICIES.items())[7 * seed % len(POLICIES)][1], seed)
    assert all(world.hosts[name].kernel is not None for name in NAMES)
    assert defects(world) == []


def values_first(self: Any, statement: Tensors, initial: Tensors) -> str:
    """Compare an array with another before it is known whether their shapes fit."""
    rows = statement.get("rows", np.zeros((1, 9)))
    wrong = not (rows < np.full(9, 99.0)).all()
    return "no such sums" if wrong else rows_fault(statement, initial["rows"].shape[1])


def test_a_check_that_raises_is_found_and_ends_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GDA, "fault", values_first)
    found = next(filter(None, (defects(attacked(POLICIES["gda"], seed)) for seed in range(1, 20))))
    assert all(f"refused a message of '{LIAR}'" in text for text in found)
