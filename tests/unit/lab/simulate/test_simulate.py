"""`fednode simulate`: what it prints, what it refuses, and that a seed is a run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fednode import cli, registry
from fednode.core import gate
from fednode.core.rounds.catchup import STATE
from fednode.core.settings import RoundSettings
from fednode.core.types import Job, Message, Tensors
from fednode.errors import ConfigError
from fednode.lab.commands.simulate import load
from fednode.lab.sim.setup import Setup
from fednode.lab.sim.world import World
from fednode.lab.simulate import scenario as scenarios
from fednode.lab.simulate.byzantine import (
    COLLUDE,
    EXCUSES,
    FLIPPED,
    KINDS,
    NASTY,
    Flipped,
    Hostile,
    Plot,
)
from fednode.lab.simulate.checkers import Violation, shown
from fednode.lab.simulate.ends import digest
from fednode.lab.simulate.faults import FAULTS
from fednode.lab.simulate.scenario import CaseEnd, Scenario, ScenarioCase, draw, play
from fednode.learn.quadratic import QuadraticLearner
from tests.contract.seeds import seeds
from tests.simulation.test_planted_bugs import FILE, gate_lets_everything_in
from tests.unit.core.scenes import PROMPTS, message

SMALL = """\
nodes: [3, 3]
rounds: 3
fault_s: 1.0
heal_s: 100.0
meshes:
  - policy: {name: promptfl}
    agrees: true
"""


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["simulate", *words])
    out, err = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, out + err


def test_digests_are_equal_for_equal_runs_and_differ_between_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    # Nodes of ZeroDFL end with different prompts, so that no two seeds end alike.
    mesh = "{name: zerodfl, recipients: 1}\n    modes: [async]"
    file.write_text(SMALL.replace("{name: promptfl}\n    agrees: true", mesh))
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.txt"
        words = (str(file), "--seed", "5", "--count", "10", "--jobs", jobs, "--digests", str(out))
        code, text = ended(capsys, *words, "--verbose")
        assert code == 0
        for part in ("10 seeds from 5 on", "0 broken", "seeds a minute", "seed 7: zerodfl"):
            assert part in text
        found.append(out.read_text())
    assert found[0] == found[1]
    lines = [one.split() for one in found[0].splitlines()]
    assert [int(seed) for seed, _, _ in lines] == list(range(5, 15))
    assert all(int(events) > 100 for _, events, _ in lines)
    assert len({(events, digest) for _, events, digest in lines}) == 10


def test_a_digest_tells_what_a_node_holds_and_whom_it_sees() -> None:
    kind = registry.policy("promptfl")
    plan = Setup(policy=kind, config=kind.config_type(), rounds=RoundSettings("sync", 1))
    ends = []
    for rate in (1.0, 1.0, 0.5):
        made = World(1)
        made.populate(plan, {name: QuadraticLearner(name, rate=rate) for name in ("a", "b")})
        assert made.run(made.finished, 100.0)
        ends.append(digest(made))
    made.hosts["a"].kernel = None
    assert ends[0] == ends[1]
    assert len({*ends, digest(made)}) == 3


def test_a_broken_promise_is_printed_small_with_the_command_that_plays_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate_lets_everything_in(monkeypatch)
    file = tmp_path / "s.yaml"
    file.write_text(SMALL + "liars: [nan]\n")
    code, text = ended(capsys, str(file), "--count", "20")
    assert code == 1
    assert "breaks AdoptsWhatIsSound" in text
    assert "with no more than:" in text
    assert f"again: fednode simulate {file} --seed " in text
    # What is left is the liar alone: none of the other faults is needed.
    shown = text[text.index("no more than:") :].splitlines()
    assert "nan; loss 0.00, duplicates 0.00" in shown[1]
    assert shown[2].strip().startswith("again:")
    assert gate.TAKEN


def test_faults_and_liars_that_do_not_matter_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The case breaks as long as one crash is in it."""
    scenario, configs = load(FILE)
    case = next(
        one
        for one in (draw(scenario, configs, seed) for seed in range(100))
        if one.liars and any(fault.kind == "crash" for fault in one.faults)
    )

    def play(_: Scenario, case: ScenarioCase) -> CaseEnd:
        crashes = any(fault.kind == "crash" for fault in case.faults)
        return CaseEnd(case, 0, 0.0, "", Violation("Crashes", "it does") if crashes else None)

    monkeypatch.setattr(scenarios, "play", play)
    least = scenarios.shrink(scenario, play(scenario, case)).case
    assert [fault.kind for fault in least.faults] == ["crash"]
    assert not least.liars
    assert (least.loss, least.duplicates, least.slow_disk_s, least.skew_s) == (0, 0, 0, 0)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Sets of names are in another order in each; nothing may depend on it."""
    words = [sys.executable, "-m", "fednode.cli", "simulate", str(FILE), "--seed", "7005"]
    ends = [
        subprocess.run(
            [*words, "--count", "3"],
            env={**os.environ, "PYTHONHASHSEED": order},
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        for order in ("0", "1")
    ]
    assert "3 seeds from 7005 on" in ends[0]
    assert ends[0] == ends[1]


def test_every_kind_of_fault_and_liar_is_drawn() -> None:
    scenario, configs = load(FILE)
    cases = [draw(scenario, configs, seed) for seed in range(1500)]
    drawn = {fault.kind for case in cases for fault in case.faults}
    assert drawn | {"backup"} == set(FAULTS)
    insiders, _ = load(FILE.parent / "insiders.yaml")
    lies = {kind for case in cases for kind in case.liars.values()}
    assert lies == set(scenario.liars)
    named = {"renamed"}  # needs class names, which `fednode experiment` has (pays-liars.yaml)
    assert lies | {*insiders.liars} | named == {*KINDS, FLIPPED}
    assert {case.mesh.policy["name"] for case in cases} == {
        "zerodfl", "local", "promptfl", "fedtpg", "fedclip", "fedmaple", "feddpt", "diprompt",
        "plan",
    }  # fmt: skip
    assert {case.mode for case in cases} == {"async", "sync"}
    assert all(len(case.liars) * 3 <= len(case.names) + 1 for case in cases)
    # In a tenth of the seeds all liars collude, and are two or more.
    colluding = [case for case in cases if COLLUDE in case.liars.values()]
    assert 0.07 <= len(colluding) / len(cases) <= 0.13
    for case in colluding:
        assert set(case.liars.values()) == {COLLUDE}
        assert 2 <= len(case.liars) < len(case.names) / 2
    # A file may give the number of liars.
    scenario, configs = load(FILE.parent / "collude.yaml")
    for case in (draw(scenario, configs, seed) for seed in range(1, 51)):
        assert (list(case.liars.values()), len(case.names)) == ([COLLUDE] * 2, 7)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("rounds: 3", "rounds: 0"),
        ("fault_s: 1.0", "fault_s: -1"),
        ("nodes: [3, 3]", "nodes: [4, 3]"),
        ("rounds: 3", "rounds: 3\nliars: [angry]"),
        ("{name: promptfl}", "{name: promptfl, weigths: equal}"),
        ("{name: promptfl}", "{name: promptfull}"),
        ("rounds: 3", "round: 3"),
        *(
            ("rounds: 3", f"rounds: 3\nfaults: {wrong}")
            for wrong in ("{loss: 0.95}", "{duplicates: 2.0}", "{delay_s: -1.0}")
        ),
    ],
)
def test_a_wrong_scenario_is_a_sentence_with_its_line(
    tmp_path: Path, change: str, text: str
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(SMALL.replace(change, text))
    with pytest.raises(ConfigError) as fault:
        load(file)
    assert f"{file}, line " in str(fault.value) or f"{file}:" in str(fault.value)


def test_a_scenario_may_take_the_meshes_of_another_file(tmp_path: Path) -> None:
    (meshes, configs), (taken, same) = load(FILE), load(FILE.parent / "harsher.yaml")
    assert taken.meshes == meshes.meshes
    assert same == configs
    assert (meshes.agrees, taken.agrees) == (True, False)
    file = tmp_path / "s.yaml"
    file.write_text("meshes: none.yaml")
    with pytest.raises(ConfigError, match=r"s.yaml, line 1: meshes is 'none.yaml', and there is"):
        load(file)


# The parts ----------------------------------------------------------------------------------------


# These lie by silence, or about what these messages do not have: class names, rounds of before.
QUIET = {COLLUDE, "withhold", "busy-helper", "busy", "false-past", "renamed"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - QUIET))
def test_every_liar_lies_and_always_says_something(kind: str) -> None:
    first = Tensors({"context": np.zeros((2, 2))})
    tongue = KINDS[kind](Hostile(("a", "b", "c"), random.Random(2), first))
    honest = [message(round=number) for number in range(1, 9)]
    if kind == "false-state":
        honest = [message(phase=STATE, facts={"adopted": "1"})]
    if kind == "slow":
        honest *= 10
    if kind in {"readdress", "foreign-text", "far-word"}:
        honest = [message(phase="ping", round=number) for number in range(1, 9)]
    said: list[tuple[str, Message]] = []
    for one in honest:
        said += tongue.say("c", one)
    assert said
    assert [one for _, one in said] != honest
    assert {to for to, _ in said} == {"c"}
    if kind != "impostor":
        assert {one.sender for _, one in said} == {"b"}


def answer(phase: str, **facts: str) -> Message:
    tensors = PROMPTS if phase == STATE else Tensors({})
    return message(phase=phase, tensors=tensors, facts=facts, round=4)


def test_colluding_nodes_claim_the_same_false_state() -> None:
    first, plot = Tensors({"context": np.zeros((2, 2))}), Plot(ahead=1000)
    told = Hostile(("a", "b"), random.Random(2), first, plot)
    one, other = (KINDS[COLLUDE](told) for _ in range(2))
    ((_, state),) = one.say("c", answer(STATE, adopted="3"))
    assert (state.round, state.facts["adopted"]) == (1004, "1003")
    ((_, claim),) = other.say("c", message(phase="ping", round=3, base=PROMPTS.digest))
    assert (claim.round, claim.base) == (1003, state.tensors.digest)
    assert state.tensors != PROMPTS
    assert {Plot.drawn(random.Random(seed)).ahead for seed in range(40)} == {0, 3, 1000, 10**6}


@pytest.mark.parametrize(
    ("kind", "asked", "said"),
    [
        ("withhold", answer("want"), {("ok", "")}),
        ("busy-helper", answer("indirect"), {(code, "") for code in EXCUSES}),
        ("busy", message(), {("busy", "later")}),
    ],
)
def test_who_answers_falsely_says_what_it_should(
    kind: str, asked: Message, said: set[tuple[str, str]]
) -> None:
    tongue = KINDS[kind](Hostile(("a", "b"), random.Random(2), PROMPTS))
    assert {tongue.answer("c", asked, "refused", "no") for _ in range(50)} == said
    assert tongue.answer("c", answer("ping"), "stale", "old") == ("stale", "old")
    assert len(tongue.say("c", message(round=4))) == 1
    assert len(tongue.say("c", answer(STATE, adopted="3"))) == (kind != "withhold")


def test_foreign_text_is_in_facts_addresses_and_answers() -> None:
    tongue = KINDS["foreign-text"](Hostile(("a", "b"), random.Random(2), PROMPTS))
    said = [one for _ in range(300) for _, one in tongue.say("c", message(phase="ping"))]
    assert {text for one in said for text in one.facts.values()} == set(NASTY)
    assert {one.address for said_ in said for one in said_.members} >= set(NASTY[:-1])
    assert {tongue.answer("c", message(), "ok", "")[1] for _ in range(50)} == {"", *NASTY}


def test_every_text_of_a_status_is_looked_at() -> None:
    peer = SimpleNamespace(name="b", state="dead", reason="why", address="b:1", id="ID")
    view = SimpleNamespace(
        life="running", activity="idle", metrics={"loss": 1.0}, refused={"norm": 1}, peers=(peer,)
    )
    assert set(shown(cast("Any", view))) == {
        "running", "idle", "loss", "norm", "b", "dead", "why", "b:1", "ID",
    }  # fmt: skip


def test_flipped_training_goes_the_other_way() -> None:
    inner = QuadraticLearner("a", rows=2, width=2)
    job = Job(round=1, stage="prompts", tensors=PROMPTS, seed=1)
    right = inner.tune(job, lambda: False, lambda _: None).tensors["context"]
    wrong = Flipped(inner).tune(job, lambda: False, lambda _: None).tensors["context"]
    start = PROMPTS["context"]
    np.testing.assert_allclose(wrong - start, start - right, atol=1e-6)


@pytest.mark.parametrize(
    "seed",
    [
        180085,  # a node took the others' state only before it had sent its contribution
        311376,  # one failed attempt to end a drift was the last before the deadline
        313983,  # a failed attempt to catch up delayed those to end a drift, too
        314017,  # several groups of nodes drifted at a time
        317922,  # the checker forgot the claims that a restarted node remembers
    ],
)
def test_seeds_that_were_broken_once_are_whole(seed: int) -> None:
    scenario, configs = load(FILE)
    outcome = play(scenario, draw(scenario, configs, seed))
    assert outcome.violation is None


AMONG = "domains: [art, photo]"
SHAPES = "shapes: {global: [4, 2], domain.art: [4, 2], domain.photo: [4, 2]}"
MESHES = {
    "mean": "{policy: {name: promptfl, participants: 2}, agrees: true}",
    "int8": "{policy: {name: promptfl, participants: 2, wire_dtype: int8}}",
    "robust": "{policy: {name: fedclip, participants: 3, merge: {rule: median}}}",
    "changes": f"{{policy: {{name: diprompt, {AMONG}, participants: 1}}, {AMONG}, {SHAPES}, "
    "agrees: true}",
}


@pytest.mark.parametrize("seed", seeds(2, 20))
@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
def test_meshes_of_which_some_nodes_take_part_in_a_round_are_whole(
    tmp_path: Path, mesh: str, seed: int
) -> None:
    file = tmp_path / "some.yaml"
    faults, _ = FILE.read_text().split("meshes:\n")
    file.write_text(f"{faults}meshes: [{mesh}]\n")
    scenario, configs = load(file)
    outcome = play(scenario, draw(scenario, configs, seed))
    assert outcome.violation is None
