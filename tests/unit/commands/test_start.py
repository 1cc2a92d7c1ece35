"""`fednode start`: what it hands on, and what it says before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.app.plan import NodePlan
from fednode.commands import start as module
from fednode.storage.store import Store
from tests.unit.commands.run import Fednode


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodePlan, Store]]:
    """Give what is run from now on; nothing is."""
    found: list[tuple[NodePlan, Store]] = []

    def run(plan: NodePlan, store: Store) -> None:
        found.append((plan, store))
        store.close()

    monkeypatch.setattr(module, "run", run)
    return found


def test_it_runs_the_plan_on_a_locked_state_directory(
    fednode: Fednode, peers: Path, tmp_path: Path, ran: list[tuple[NodePlan, Store]]
) -> None:
    state = tmp_path / "s"
    words = ("start", "--name", "b", "--state", state, "--set", "rounds.max=7")
    assert fednode(*words) == 0
    ((plan, _),) = ran
    assert (plan.name, plan.settings.rounds.max, plan.state) == ("b", 7, state)
    assert plan.peers.mesh == "clinic"
    held = Store(state)
    assert "is in use" in fednode.fault(*words)
    held.close()
    assert len(ran) == 1


def test_the_settings_of_the_folder_are_used_and_named(
    fednode: Fednode, peers: Path, tmp_path: Path, ran: list[tuple[NodePlan, Store]]
) -> None:
    (tmp_path / "node.yaml").write_text("rounds: {max: 3}\n")
    assert fednode("start", "--name", "a", "--state", tmp_path / "s") == 0
    assert fednode.err.startswith("The settings are those of ./node.yaml.\n")
    assert ran[0][0].settings.rounds.max == 3
    (tmp_path / "mine.yaml").write_text("rounds: {max: 4}\n")
    assert fednode("start", "--config", "mine.yaml", "--name", "a", "--state", tmp_path / "s") == 0
    assert ran[1][0].settings.rounds.max == 4


def test_without_a_mesh_it_says_how_to_get_one(
    fednode: Fednode, ran: list[tuple[NodePlan, Store]]
) -> None:
    assert fednode.fault("start", "--name", "a") == (
        "There is no peers.yaml here: name one with --peers, or write one with `fednode init`."
    )
    assert ran == []
