"""The demo runs both methods with equal settings, asks the daemons, and writes down what they said.

Method: processes that stand in for daemons and report canned figures (fake_daemon.py).
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fednode.errors import ConfigError
from fednode.lab.demo import demo
from fednode.lab.demo.demo import CONTROL, METHOD, RECOMMENDED, SAME_HEAD, DemoOptions
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.settings import MethodSettings
from fednode.wire.gen.status_pb2 import Round, StatusReply, Traffic
from tests.unit.bootstrap.log_observer import LogObserver
from tests.unit.bootstrap.test_mesh import FAKE, ROOT

Options = Callable[..., DemoOptions]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = tmp_path / "node.yaml"
    config.write_text("data: {shots: 8}\n")

    def build(*settings: str, seeds: tuple[int, ...] = (1,), keep: bool = False) -> DemoOptions:
        return DemoOptions(
            out=tmp_path / "demo",
            config=config,
            seeds=seeds,
            nodes=2,
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
    assert await demo.run(options("tuning.lr=0.1", seeds=(1, 2)), observer, screen) == 0
    assert observer.closed
    read = report_of(tmp_path)
    zero, local, ours, *_, advised = read["rows"]
    labels = [
        "zero-shot",
        "local",
        "zerodfl",
        "local, with gda's classifier",
        RECOMMENDED.label,
    ]
    assert [row["method"]["label"] for row in read["rows"]] == labels
    assert advised["method"]["tuning"] == RECOMMENDED.tuning
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
    assert "| zerodfl | 2 | " in written.getvalue()
    assert "| +10.0 (+10.0 to +10.0), 4 of 4 |" in written.getvalue()
    assert "| zero-shot | 2 | - | 25.0 ± 0.0 | 22.0 ± 0.0 |" in written.getvalue()
    # Nothing but tables and the picture is left behind.
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        *("curves.csv", "curves.png", "report.json", "report.md", "scores.csv")
    ]
    assert len(read["cells"]) == 10
    assert written.getvalue().splitlines()[-1].startswith("In short: the exchange does not help")


async def test_methods_differ_in_policy_and_tuning_alone(options: Options, tmp_path: Path) -> None:
    observer = LogObserver(tmp_path)
    assert await demo.run(options(keep=True), observer, console()[0]) == 0
    logs = sorted((tmp_path / "demo").rglob("node-2.log"))
    said = [json.loads(log.read_text().splitlines()[0])["arguments"] for log in logs]
    assert len(said) == 4
    differing = set.union(*map(set, said)) - set.intersection(*map(set, said))
    advised = RECOMMENDED
    tuning = {f"tuning.{key}={value}" for key, value in advised.tuning.items()}
    policies = {
        "policy={name: local}", "policy={head: gda, name: local}", "policy.name=zerodfl",
        f"policy={{name: {advised.label}}}",
    }  # fmt: skip
    limit = {f"rounds.max={advised.rounds}"}
    assert {one for one in differing if "meshes-" not in one} == tuning | policies | limit
    assert {"seed=1", "data.seed=1"} <= set(said[0])


async def test_a_daemon_that_crashed_is_a_warning(options: Options, tmp_path: Path) -> None:
    asked = options("fake.exit=node-1", "fake.code=70")
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
    assert await demo.run(options(), LogObserver(tmp_path), screen) == 0
    assert "curves.png was not drawn: matplotlib draws pictures and is not" in written.getvalue()
    assert not (tmp_path / "demo/curves.png").exists()
    assert len(report_of(tmp_path)["cells"]) == 5


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none twice"):
        DemoOptions(seeds=(1, 1))
    with pytest.raises(ConfigError, match="run it from a checkout"):
        DemoOptions(config=tmp_path / "missing.yaml")


def node(name: str, new: float, sent: int = 0) -> tuple[StatusReply, Sequence[Round]]:
    """Return a node of three rounds, of which the first measures no accuracy."""
    traffic = Traffic(messages_out=3, payload_out=sent, serialized_out=2 * sent, wire_out=3 * sent)
    metrics = {"zero_shot_new": 0.3, "zero_shot_base": 0.4, "new": new, "loss": 0.5}
    rounds = [
        Round(round=1, metrics={"loss": 2.0}),
        Round(round=2, metrics={"loss": 1.0, "new": new / 2}),
        Round(round=3, metrics={"loss": 0.5, "new": new, "base": 0.6, "validation": 0.1}),
    ]
    status = StatusReply(name=name, model="mini", metrics=metrics, traffic=traffic)
    return status, rounds


def test_an_outcome_has_the_last_round_the_curve_losses_and_bytes() -> None:
    said = {"b": node("b", 0.4, 10), "a": node("a", 0.2, 30)}
    one = demo.cell_of(METHOD, 3, ("tuning.lr=1",))
    found = demo.outcome(one, said, ["a was slow."], 7.0).outcome
    assert found["scores"] == {"base": {"a": 0.6, "b": 0.6}, "new": {"a": 0.2, "b": 0.4}}
    assert found["curve"] == {"2": {"new": {"a": 0.1, "b": 0.2}}, "3": found["scores"]}
    assert found["loss"] == [2.0, 1.0, 0.5]
    sent = {"messages": 6, "payload": 40, "serialized": 80, "wire": 120}
    assert found["bytes"] == {"all": sent}
    assert (found["method"], found["seed"], found["rounds"], found["nodes"]) == ("zerodfl", 3, 3, 2)
    assert (found["warnings"], found["seconds"]) == (["a was slow."], 7.0)
    status, rounds = said["a"]
    found = demo.outcome(one, {"a": (status, rounds[1:])}, [], 1.0).outcome
    assert found["loss"] == [], "a round has no loss"


def test_zero_shot_is_measured_once_for_each_node() -> None:
    found = demo.zero_shot(2, {"a": node("a", 0.9)}, ())
    assert found.outcome["scores"] == {"base": {"a": 0.4}, "new": {"a": 0.3}}
    assert found.cell.method.label == "zero-shot"
    assert demo.zero_shot(2, {}, ()).fault == "no node has a result"


def test_a_cell_s_key_changes_with_its_settings() -> None:
    first = demo.cell_of(METHOD, 1, ("tuning.lr=1",))
    assert first == demo.cell_of(METHOD, 1, ("tuning.lr=1",))
    others = [
        demo.cell_of(CONTROL, 1, ("tuning.lr=1",)),
        demo.cell_of(METHOD, 2, ("tuning.lr=1",)),
        demo.cell_of(METHOD, 1, ("tuning.lr=2",)),
    ]
    assert len({first.file, *(one.file for one in others)}) == 4


def with_base(method: MethodSettings, base: Sequence[float]) -> list[Done]:
    """Return a cell for each seed, whose two nodes have this accuracy on base classes."""
    scores = ({"base": {"a": value, "b": value + 0.02}} for value in base)
    return [
        Done(demo.cell_of(method, seed, ()), {"scores": one, "seconds": 1.0})
        for seed, one in enumerate(scores, 1)
    ]


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (
            (0.60, 0.62),
            "Untuned it is right in 31.0 % of the test images, without peers (local, with gda's "
            f"classifier) in 51.0 %, and with what its peers send ({RECOMMENDED.label}) in 62.0 %. "
            "So its peers bring +11.0 points, 95 % interval +10.0 to +12.0, and no image left its "
            "node. With 2 seeds the interval is a rough guide",
        ),
        (
            (0.49, 0.53),
            "So its peers bring +1.0 points, 95 % interval -1.0 to +3.0 (it may be chance), and",
        ),
        (
            (0.49, 0.49),
            f"In short: the exchange does not help ({RECOMMENDED.label} less local, with gda's "
            "classifier: -1.0 points, 95 % interval -1.0 to -1.0).",
        ),
    ],
)
def test_the_last_sentence_says_what_peers_bring(ours: Sequence[float], said: str) -> None:
    made = demo.experiment({}, 2, (1, 2), 50)
    control = [*with_base(CONTROL, (0.5, 0.5)), *with_base(SAME_HEAD, (0.5, 0.5))]
    done = [
        *with_base(METHOD, (0.4, 0.4)),
        *with_base(RECOMMENDED, ours),
        *with_base(demo.WRITTEN, (0.3, 0.3)),
    ]
    assert said in demo.verdict(made, [*done, *control])
    assert demo.verdict(made, done) == ""
    seeds = [
        replace(one, cell=replace(one.cell, seed=at)) for at in range(5) for one in done + control
    ]
    assert "rough guide" not in demo.verdict(replace(made, seeds=tuple(range(5))), seeds)
