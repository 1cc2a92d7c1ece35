"""The demo runs both methods with equal settings, asks the daemons, and writes down what they said.

Method: processes that stand in for daemons and report canned figures (fake_daemon.py).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from fednode.errors import ConfigError
from fednode.lab.demo import demo, report
from fednode.lab.demo.demo import Clock, DemoOptions
from fednode.wire.gen.status_pb2 import Round, StatusReply, Traffic
from fednode_bootstrap.mesh import LocalMesh, Member, MeshSettings
from fednode_bootstrap.process import Daemon
from tests.unit.bootstrap.fake_daemon import LogObserver
from tests.unit.bootstrap.test_mesh import FAKE, ROOT

Options = Callable[..., DemoOptions]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = tmp_path / "node.yaml"
    config.write_text("data: {shots: 8}\n")

    def build(*settings: str, quick: bool = False, keep: bool = False) -> DemoOptions:
        return DemoOptions(
            out=tmp_path / "demo",
            config=config,
            seeds=(1, 2),
            nodes=2,
            quick=quick,
            keep=keep,
            settings=settings,
            timeout_s=20.0,
            poll_s=0.01,
            module=FAKE,
        )

    return build


def console() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=160), written


async def test_the_demo_reports_what_the_daemons_said(options: Options, tmp_path: Path) -> None:
    screen, written = console()
    observer = LogObserver(tmp_path)
    assert await demo.run(options("tuning.lr=0.1"), observer, screen) == 0
    assert observer.closed
    read = json.loads((tmp_path / "demo" / "report.json").read_text())
    zero, local, ours = read["rows"]
    assert [row["method"] for row in read["rows"]] == ["zero-shot", "local", "zerodfl"]
    assert zero["new_mean"] == pytest.approx(0.22)
    # What fake_daemon.say makes up: by seed on new classes, by node on base classes.
    assert local["new_mean"] == pytest.approx((0.201 + 0.202) / 2)
    assert ours["new_mean"] == pytest.approx((0.301 + 0.302) / 2)
    assert ours["base_mean"] == pytest.approx((0.31 + 0.32) / 2)
    assert (local["payload_bytes"], ours["payload_bytes"]) == (0, 2000)
    assert (ours["serialized_bytes"], ours["wire_bytes"]) == (4000, 6000)
    assert read["differences"][1]["mean"] == pytest.approx(0.1)
    assert read["about"]["seeds"] == [1, 2]
    assert read["about"]["settings"] == {"data": {"shots": 8}}
    assert read["about"]["settings_on_top"] == ["tuning.lr=0.1", "tuning.threads=1"]
    assert read["about"]["command"].endswith("--set tuning.lr=0.1")
    assert read["about"]["versions"]["fednode"]
    assert read["remarks"] == []
    assert "zerodfl beats local on new classes: +10.0 points" in written.getvalue()
    # Nothing but the report is left behind.
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        *("plot.png", "report.json", "report.md")
    ]


async def test_both_methods_differ_in_the_policy_alone(options: Options, tmp_path: Path) -> None:
    observer = LogObserver(tmp_path)
    assert await demo.run(options(quick=True, keep=True), observer, console()[0]) == 0
    logs = sorted((tmp_path / "demo").rglob("node-2.log"))
    said = [json.loads(log.read_text().splitlines()[0])["arguments"] for log in logs]
    assert len(said) == 2
    differing = {one for pair in zip(*said, strict=True) if len(set(pair)) > 1 for one in pair}
    of_folder = {one for one in differing if "meshes-" in one}
    assert differing - of_folder == {"policy={name: local}", "policy.name=zerodfl"}
    assert {"seed=1", "data.seed=1", f"rounds.max={demo.QUICK_ROUNDS}"} <= set(said[0])


async def test_a_daemon_that_crashed_is_a_remark(options: Options, tmp_path: Path) -> None:
    asked = options("fake.exit=node-1", "fake.code=70", quick=True)
    assert await demo.run(asked, LogObserver(tmp_path), console()[0]) == 0
    read = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert [row["n"] for row in read["rows"]] == [2, 2, 2]
    assert "zerodfl, seed 1: node-1 ended with exit code 70" in read["remarks"][0]
    assert "was started again" in read["remarks"][1]


async def test_a_node_without_a_result_is_a_remark(options: Options, tmp_path: Path) -> None:
    asked = options("fake.exit=node-1", "fake.code=2", quick=True)
    assert await demo.run(asked, LogObserver(tmp_path), console()[0]) == 0
    read = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert [row["n"] for row in read["rows"]] == [1, 1, 1]
    assert "zerodfl, seed 1: node-1 has no result." in read["remarks"]


def test_outcome_takes_last_round_zero_shot_and_evaluated_rounds() -> None:
    history = [
        Round(round=number, metrics=metrics, traffic=Traffic(payload_out=10 * number))
        for number, metrics in enumerate(
            ({"loss": 2.0}, {"loss": 1.0, "new": 0.3}, {"loss": 0.5, "new": 0.4, "base": 0.6}), 1
        )
    ]
    traffic = Traffic(payload_out=30, serialized_out=40, wire_out=50)
    status = StatusReply(name="a", metrics={"zero_shot_new": 0.1, "new": 0.4}, traffic=traffic)
    found = demo.outcome("local", 3, status, history)
    assert found.metrics == {"new": 0.4, "base": 0.6}
    assert found.zero_shot == {"new": 0.1}
    assert (found.rounds, found.payload_bytes, found.wire_bytes) == (3, 30, 50)
    assert [(one.round, one.payload_bytes) for one in found.points] == [(2, 20), (3, 30)]
    assert demo.outcome("local", 3, status, []).metrics == {}


def test_time_left_follows_from_what_is_done(tmp_path: Path) -> None:
    times = iter([100.0, 160.0, 220.0])
    clock = Clock(total=4, now=lambda: next(times), label="local, seed 1")
    assert clock.fraction() == 0.0
    clock.done = 1
    assert clock.left_s() == pytest.approx(180.0)  # 60 s for a quarter
    mesh = clock.mesh = LocalMesh(MeshSettings(run_dir=tmp_path), LogObserver(tmp_path))
    for name, status in (
        ("up", StatusReply(name="up", round=5, rounds_max=10)),
        ("coming", None),
    ):
        mesh.members[name] = Member(name=name, address="", daemon=Daemon(name, (), tmp_path / name))
        mesh.members[name].status = status
    share = (demo.STARTUP_SHARE + (1 - demo.STARTUP_SHARE) / 2) / 2
    assert clock.fraction() == pytest.approx((1 + share) / 4)
    assert clock.headline().startswith("local, seed 1 (2 of 4), 34 %, about 3 min")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (200, "3 min 20 s")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert demo.duration(seconds) == text


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none twice"):
        DemoOptions(seeds=(1, 1))
    with pytest.raises(ConfigError, match="run it from a checkout"):
        DemoOptions(config=tmp_path / "missing.yaml")


def outcome(accuracies: dict[str, float], payload_bytes: int = 0) -> report.Outcome:
    return report.Outcome(
        method="local", seed=1, node="a", metrics=accuracies, zero_shot={}, rounds=3,
        payload_bytes=payload_bytes,
    )  # fmt: skip


def test_a_line_on_a_mesh_says_what_was_measured() -> None:
    one = outcome({"base": 0.5, "new": 0.25}, payload_bytes=2048)
    assert demo.line("local", 1, [one]) == "local, seed 1: base 50.0 %, new 25.0 %, 2.0 KiB sent"
    silent = outcome({})
    assert demo.line("local", 1, [silent]) == "local, seed 1: no accuracies, 0 B sent"
