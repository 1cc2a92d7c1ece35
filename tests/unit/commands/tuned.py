"""A node that ran one round: a folder with images, and a state directory with prompts."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from fednode.app.plan import facts_of, learner_of, make
from fednode.app.state_dir import remember
from fednode.core.types import Job, PolicyState, Snapshot
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS

COLOURS = {"lemon": (230, 220, 40), "sea": (20, 60, 200)}


def draw(folder: Path, count: int) -> None:
    """Put so many images of each of two classes into a folder."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            shade = tuple(max(0, part - 3 * number) for part in colour)
            Image.new("RGB", (64, 64), shade).save(folder / name / f"{number}.png")


def tune_in(folder: Path, *more: str) -> Path:
    """Fill a folder with images of two classes and tune on them; return the state directory.

    more: further settings.
    """
    draw(folder / "images", 6)
    (folder / "peers.yaml").write_text(PEERS)
    flags = (
        f"data.path={folder / 'images'}",
        *("data.shots=4", "data.test=0.3", "rounds.max=1", "tuning.lr=0.1", "tuning.epochs=20"),
        *more,
    )
    plan = make(folder / "peers.yaml", None, "a", flags, folder / "state")
    store = Store(plan.state)
    learner = learner_of(plan.settings, "a")
    first = learner.initial(1)
    report = learner.tune(
        Job(round=1, stage="prompts", tensors=first, seed=3, rounds=1),
        lambda: False,
        lambda _: None,
    )
    store.bind({"name": "a", **facts_of(plan, learner)})
    remember(plan.state, plan.name, plan.settings, learner.classes)
    store.commit(Snapshot(PolicyState(1, report.tensors, report.tensors), report.metrics))
    store.close()
    return folder / "state"
