"""The demo runs both methods with equal settings, asks the daemons, and writes down what they said.

Method: processes that stand in for daemons and report canned figures (fake_daemon.py).
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fednode.errors import ConfigError
from fednode.lab.demo import cells, demo
from fednode.lab.demo.demo import Clock, DemoOptions
from fednode.wire.gen.status_pb2 import Round, StatusReply, Traffic
from fednode_bootstrap.daemon import Daemon
from fednode_bootstrap.mesh import LocalMesh, Member, MeshSettings
from tests.unit.bootstrap.log_observer import LogObserver
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


def report_of(folder: Path) -> Any:
    return json.loads((folder / "demo" / "report.json").read_text())


async def test_the_demo_reports_what_the_daemons_said(options: Options, tmp_path: Path) -> None:
    screen, written = console()
    observer = LogObserver(tmp_path)
    assert await demo.run(options("tuning.lr=0.1"), observer, screen) == 0
    assert observer.closed
    read = report_of(tmp_path)
    zero, local, ours, *_, advised = read["rows"]
    labels = [
        "zero-shot",
        "local",
        "zerodfl",
        "local, with gda's classifier",
        cells.RECOMMENDED.label,
    ]
    assert [row["method"]["label"] for row in read["rows"]] == labels
    assert advised["method"]["tuning"] == cells.RECOMMENDED.tuning
    assert zero["figures"]["new"]["mean"] == pytest.approx(22.0)
    # What fake_daemon.say makes up: by seed on new classes, by node on base classes.
    assert local["figures"]["new"]["mean"] == pytest.approx(100 * (0.201 + 0.202) / 2)
    assert ours["figures"]["new"]["mean"] == pytest.approx(100 * (0.301 + 0.302) / 2)
    assert ours["figures"]["base"]["mean"] == pytest.approx(100 * (0.31 + 0.32) / 2)
    assert ours["figures"]["new"]["over_seeds"] == pytest.approx(0.1 / 2**0.5)
    assert (local["traffic"]["payload"], ours["traffic"]["payload"]) == (0, 2000)
    assert (ours["traffic"]["serialized"], ours["traffic"]["wire"]) == (4000, 6000)
    assert read["experiment"]["seeds"] == [1, 2]
    assert read["experiment"]["data"]["shots"] == 8
    assert read["command"].endswith("--set tuning.lr=0.1")
    said = "zerodfl minus local on new classes: +10.0 points, 95 % interval +10.0 to +10.0"
    assert said in written.getvalue()
    assert "| zero-shot | 2 | - | 25.0 ± 0.0 | 22.0 ± 0.0 |" in written.getvalue()
    # Nothing but cells, tables and the picture is left behind.
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        *("cells", "curves.csv", "curves.png", "report.json", "report.md", "scores.csv")
    ]
    assert len(list((tmp_path / "demo/cells").iterdir())) == 10
    assert written.getvalue().splitlines()[-1].startswith("In short: after 2 rounds the exchange")


async def test_methods_differ_in_policy_and_tuning_alone(options: Options, tmp_path: Path) -> None:
    observer = LogObserver(tmp_path)
    assert await demo.run(options(quick=True, keep=True), observer, console()[0]) == 0
    logs = sorted((tmp_path / "demo").rglob("node-2.log"))
    said = [json.loads(log.read_text().splitlines()[0])["arguments"] for log in logs]
    assert len(said) == 4
    differing = set.union(*map(set, said)) - set.intersection(*map(set, said))
    advised = cells.RECOMMENDED
    tuning = {f"tuning.{key}={value}" for key, value in advised.tuning.items()}
    policies = {
        "policy={name: local}", "policy={head: gda, name: local}", "policy.name=zerodfl",
        f"policy={{name: {advised.label}}}",
    }  # fmt: skip
    limit = {f"rounds.max={advised.rounds}"}
    assert {one for one in differing if "meshes-" not in one} == tuning | policies | limit
    assert {"seed=1", "data.seed=1", f"rounds.max={demo.QUICK_ROUNDS}"} <= set(said[0])


async def test_a_daemon_that_crashed_is_a_warning(options: Options, tmp_path: Path) -> None:
    asked = options("fake.exit=node-1", "fake.code=70", quick=True)
    assert await demo.run(asked, LogObserver(tmp_path), console()[0]) == 0
    zero, *others = report_of(tmp_path)["cells"]
    assert {name for nodes in zero["scores"].values() for name in nodes} == {"node-2"}
    for one in others:
        assert one["warnings"][0].startswith("node-1 ended with exit code 70")
        assert one["warnings"][1:] == ["node-1 has no result."]
        assert (one["nodes"], sorted(one["scores"]["new"])) == (1, ["node-2"])
    text = (tmp_path / "demo/report.md").read_text()
    assert "- zerodfl, seed 1: node-1 ended with exit code 70" in text


async def test_without_matplotlib_the_report_is_whole_and_says_so(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    screen, written = console()
    assert await demo.run(options(quick=True), LogObserver(tmp_path), screen) == 0
    assert "curves.png was not drawn: matplotlib draws the curves and is not" in written.getvalue()
    assert not (tmp_path / "demo/curves.png").exists()
    assert len(report_of(tmp_path)["cells"]) == 5


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


def test_a_line_on_a_mesh_says_what_was_measured() -> None:
    one = cells.cell(cells.CONTROL, 1, ())
    status = StatusReply(name="a", traffic=Traffic(payload_out=2048))
    measured = [Round(round=1, metrics={"base": 0.5, "new": 0.25})]
    found = cells.outcome(one, {"a": (status, measured)}, [], 1.0)
    assert demo.line(found) == "local, seed 1: base 50.0 %, new 25.0 %, 2.0 KiB sent"
    silent = cells.outcome(one, {"a": (status, [])}, [], 1.0)
    assert demo.line(silent) == "local, seed 1: no accuracies, 2.0 KiB sent"
    assert demo.line(cells.outcome(one, {}, [], 1.0)) == "local, seed 1: no node has a result"
