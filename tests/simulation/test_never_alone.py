"""No view claims a federation that did not happen: twelve cases in virtual time, every view."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from rich.console import Console, RenderableType
from rich.text import Text

from fednode.app.state_dir import Tuned
from fednode.commands import eval as eval_
from fednode.core.events import AckCode
from fednode.core.kernel import Kernel
from fednode.core.reputation import Tolerance
from fednode.core.settings import RoundSettings, StartSettings
from fednode.core.types import Message
from fednode.core.view import KernelView
from fednode.errors import NeverMerged
from fednode.lab.sim.host import Liar
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.learn.quadratic import QuadraticLearner
from fednode.observe.metrics import Metrics
from fednode.observe.page import Page
from fednode.observe.status import NodeService
from fednode.policies.local import Local, LocalConfig
from fednode.settings.read import Chosen, Settings
from fednode.storage.store import Store
from fednode.terminal import show
from fednode.wire.gen.status_pb2 import StatusReply
from fednode_bootstrap.view import page as mesh_page
from tests.unit.commands.canned import member
from tests.unit.lab.sim.meshes import Kind, promptfl
from tests.unit.observe.nodes import FakeNode
from tests.unit.runtime.daemons import ABOUT
from tests.unit.storage.stored import read_snapshot

NAMES = ("a", "b", "c")
ROUNDS = 6
SOON = StartSettings(timeout_s=5.0)
CONTROL = Kind(Local, LocalConfig(), {"context": (4, 3)})
NORMAL = promptfl()


def placed(
    start: StartSettings = SOON, tolerances: Sequence[Tolerance] = (), **kinds: Kind
) -> World:
    """Return a mesh that is switched off; kinds: of the nodes that run something else."""
    world = World(1)
    for at, name in enumerate(NAMES):
        kind = kinds.get(name, NORMAL)
        setup = Setup(
            policy=kind.policy,
            config=kind.config,
            rounds=RoundSettings(max=ROUNDS, start=start, deadline_s=5.0),
            tolerance=tolerances[at] if tolerances else Tolerance(),
        )
        learner = QuadraticLearner(name, samples=10, shapes=kind.shapes)
        peers = tuple(one for one in NAMES if one != name)
        world.add(name, setup.build(name, peers, learner), learner)
    return world


def ended(world: World) -> World:
    assert world.run(world.finished, 3600.0), "the mesh does not come to an end"
    return world


def passed(world: World, seconds: float) -> World:
    world.run(lambda: False, seconds)
    return world


def another_key(to: str, message: Message) -> list[tuple[str, Message]]:
    """Send as a node whose key is no member's: the message comes from another key."""
    return [(to, replace(message, sender="zoe"))]


def no_member(sender: str, message: Message, code: AckCode, detail: str) -> tuple[AckCode, str]:
    return "refused", "this key is no member's"


def late() -> World:
    world = placed()
    world.start("a")
    ended(world)
    world.start("b", "c")
    return ended(world)


def refused_by_policy() -> World:
    world = placed(StartSettings(), c=CONTROL)
    world.start(*NAMES)
    return passed(world, 1000.0)


def refused_by_length() -> World:
    world = placed(c=promptfl(wire_dtype="int8"))
    world.start(*NAMES)
    return ended(world)


def dead_throughout() -> World:
    world = placed()
    world.start("a")
    return ended(world)


def dead_after_round_one() -> World:
    world = placed()
    world.start(*NAMES)
    assert world.run(lambda: world.kernel("a").view().round >= 1, 60.0)
    world.crash("b")
    world.crash("c")
    return ended(world)


def cut_off_one_way() -> World:
    world = placed()
    world.network.cut("b", "a")
    world.network.cut("c", "a")
    world.start(*NAMES)
    return ended(world)


def restarted() -> World:
    world = dead_throughout()
    world.crash("a")
    world.start("a")
    return ended(world)


def all_contributions_refused() -> World:
    strict = Tolerance(norm_ratio=1e-9)
    world = placed(tolerances=(strict, Tolerance(), Tolerance()))
    world.start(*NAMES)
    return ended(world)


def finished_before() -> World:
    world = placed()
    world.start(*NAMES)
    ended(world)
    world.crash("a")
    world.start("a")
    return ended(world)


def wrong_lease() -> World:
    world = placed()
    world.hosts["c"].liar = Liar(another_key, no_member)
    world.start(*NAMES)
    ended(world)

    def refused() -> bool:  # c hears the others as well, which do not know of its key
        return all(peer.state == "refused" for peer in world.kernel("c").view().peers)

    assert world.run(refused, 60.0), "the others refuse what c says next"
    return world


def paused() -> World:
    """Return a mesh whose node a ran alone and was paused, before b and c came."""
    world = dead_throughout()
    world.command("a", "pause")
    world.start("b", "c")
    return passed(world, 60.0)


def alone_by_wish() -> World:
    world = placed(a=CONTROL, b=CONTROL, c=CONTROL)
    world.start(*NAMES)
    return ended(world)


@dataclass(frozen=True)
class Outcome:
    """What became of a node: its life, its rounds by merged and run, and what every view says."""

    life: str
    merged: int
    ran: int
    said: str = ""

    @property
    def never(self) -> bool:
        return self.merged == 0 < self.ran


LONELY = "0 of 6 rounds merged what peers sent"
MET = (
    f"{LONELY}, and b, c can be reached now: fednode reset and fednode start at a begin the rounds"
    " again"
)
ALONE = Outcome("finished", 0, 6, LONELY)
WHOLE = Outcome("finished", 6, 6)
REFUSED = "(refused: policy.name is promptfl at 'a' and local at 'c')"
CASES: dict[Callable[[], World], dict[str, Outcome]] = {
    late: {"a": Outcome("finished", 0, 6, MET), "b": WHOLE, "c": WHOLE},
    refused_by_policy: {
        "a": Outcome("waiting", 0, 0, f"before round 1 this node waits for c {REFUSED}"),
        "b": Outcome("waiting", 0, 0, "before round 1 this node waits for c (refused: policy.name"),
        "c": Outcome("waiting", 0, 0, "before round 1 this node waits for a (refused: policy.name"),
    },
    refused_by_length: {
        "a": Outcome("finished", 6, 6, "c is refused: policy is"),
        "b": Outcome("finished", 6, 6, "c is refused: policy is"),
        "c": Outcome("finished", 0, 6, "b is refused: policy is"),
    },
    dead_throughout: {"a": ALONE},
    dead_after_round_one: {"a": Outcome("finished", 1, 6, "1 of 6 rounds merged what peers")},
    cut_off_one_way: {
        "a": ALONE,
        "b": Outcome("finished", 6, 6, "a speaks, but this node cannot reach it"),
        "c": Outcome("finished", 6, 6, "a speaks, but this node cannot reach it"),
    },
    restarted: {"a": ALONE},
    all_contributions_refused: {"a": Outcome("finished", 0, 6, MET), "b": WHOLE, "c": WHOLE},
    finished_before: {"a": WHOLE, "b": WHOLE, "c": WHOLE},
    wrong_lease: {
        "a": Outcome("finished", 6, 6, "c is refused: this key is no member's"),
        "b": Outcome("finished", 6, 6, "c is refused: this key is no member's"),
        "c": Outcome("finished", 0, 6, "a is refused: this key is another's"),
    },
    paused: {"a": Outcome("paused", 0, 6, LONELY), "b": WHOLE, "c": WHOLE},
    alone_by_wish: {name: Outcome("finished", 0, 6) for name in NAMES},
}


@dataclass
class Seen(FakeNode):
    """A simulated node, as its status service sees it."""

    kernel: Kernel = field(kw_only=True)

    def view(self) -> KernelView:
        return self.kernel.view()


def drawn(shown: RenderableType) -> str:
    console = Console(width=400, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


async def views(world: World, name: str, folder: Path) -> tuple[StatusReply, dict[str, str]]:
    """Return a node's reply, and what each view shows of it."""
    kernel = world.kernel(name)
    store = Store(folder / name)
    service = NodeService(store, replace(ABOUT, name=name))
    node = Seen(kernel=kernel, addresses={one: f"127.0.0.1:{ord(one)}" for one in NAMES})
    service.attach(node, QuadraticLearner(name))
    reply = service.now()
    page = Page(service, lambda _: "operator")
    answer = await page._status(cast("web.Request", None))
    metrics = Metrics()
    metrics.watch(service.now)
    store.close()
    seen = member(name, reply.life, reply)
    return reply, {
        "status": drawn(show.node(reply)),
        "overview": drawn(show.mesh([((name, "127.0.0.1:1"), reply)])),
        "live": drawn(mesh_page(Text("head"), [seen])),
        "page": str(answer.text),
        "metrics": metrics.text()[0].decode(),
        "eval": evaluated(world, name, folder / f"{name}-eval"),
    }


def evaluated(world: World, name: str, folder: Path) -> str:
    """Return what `fednode eval` says of the node's state directory; "" if it is empty."""
    held = world.hosts[name].durable
    if held is None:
        return ""
    store = Store(folder)
    store.commit(held)
    store.close()
    kind = CONTROL if world.kernel(name).context.policy == "local" else NORMAL
    chosen = Chosen(kind.policy, kind.config, {})
    found = read_snapshot(folder)
    tuned = Tuned(
        folder=folder,
        settings=Settings(policy=chosen),
        classes=(),
        prompts=found.policy.tuned,
        round=found.policy.round,
        backbone="",
        merge_counts=found.merge_counts,
    )
    measured = eval_.Measured(results={"tuned": {}})
    return "\n".join(eval_._lines(tuned, (), measured, others=False))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_no_view_claims_a_federation_that_did_not_happen(
    case: Callable[[], World], tmp_path: Path
) -> None:
    world = case()
    on = [name for name in NAMES if world.hosts[name].kernel is not None]
    assert on == list(CASES[case]), "the table says what becomes of every node"
    replies = []
    for name, outcome in CASES[case].items():
        reply, shown = await views(world, name, tmp_path)
        replies.append(reply)
        judge_counts(name, outcome, reply, shown)
        judge_sentences(name, outcome, reply, shown)
    never = [
        f"{name} (0 of {one.ran})"
        for (name, one), reply in zip(CASES[case].items(), replies, strict=True)
        if one.never and not reply.alone_by_wish
    ]
    if not never:
        show.require_merged(replies)
        return
    with pytest.raises(NeverMerged, match=re.escape(", ".join(never))) as caught:
        show.require_merged(replies)
    assert caught.value.exit_code == 1


def judge_counts(name: str, outcome: Outcome, reply: StatusReply, shown: Mapping[str, str]) -> None:
    """Check what the views count: rounds, merged rounds, the node's life, the metric."""
    wish, merged, ran = reply.alone_by_wish, outcome.merged, outcome.ran
    assert (reply.life, reply.round) == (outcome.life, ran), name
    assert (reply.rounds_merged, reply.rounds_run) == (merged, ran)
    assert all(outcome.life in shown[view] for view in ("status", "overview", "live", "page")), name
    row = next(line for line in shown["overview"].splitlines() if line.startswith(f"{name} "))
    cell = "alone" if wish else f"{merged}/{ran}" if ran else ""
    counted = row.split(outcome.life)[-1].split()  # a paused node may be finished, too
    assert counted[0] == f"{ran}/{ROUNDS}", row
    assert not cell or counted[1] == cell, row
    row = next(line for line in shown["live"].splitlines() if line.startswith(f"{name} "))
    counted = row.split(outcome.life)[-1].split()
    assert counted[0] == f"{ran}/{ROUNDS}", row
    assert not cell or counted[1] == cell, row
    counts = {"peers": 0, "nobody": 0} if wish else {"peers": merged, "nobody": ran - merged}
    for key, count in counts.items():
        line = f'fednode_rounds_by_company{{merged="{key}"}} {count:.1f}'
        assert line in shown["metrics"], (name, line)
    sentence = f"{merged} of {ran} rounds merged what peers sent"
    if wish:
        sentence = f"all {ran} rounds ran alone, as the settings ask"
    for view in ("status", "page", "eval"):
        assert (sentence in shown[view]) == bool(ran), (name, view)


def judge_sentences(
    name: str, outcome: Outcome, reply: StatusReply, shown: Mapping[str, str]
) -> None:
    """Check what the views say: of a node without peers' prompts, every one says it."""
    lonely = outcome.never and not reply.alone_by_wish
    people = ("status", "overview", "live", "page")
    assert show.never_merged(reply) == lonely, name
    for view in people:
        assert outcome.said in shown[view], (name, view)
        assert (LONELY in shown[view]) == lonely, (name, view)
        assert ("can be reached now" in shown[view]) == ("can be reached now" in str(reply)), view


def test_the_cases_differ_in_what_happened() -> None:
    assert len(CASES) == 12
    merged = dead_after_round_one().kernel("a").view().merge_counts.merged
    assert 0 < merged < ROUNDS / 2
    assert finished_before().kernel("a").view().merge_counts.merged == ROUNDS
