"""The benchmark compares like with like, and says when its reference is no fair one.

Method: a tiny architecture; figures of time are looked at for sense, never for size.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from open_clip.tokenizer import SimpleTokenizer
from open_clip.transform import PreprocessCfg, merge_preprocess_dict
from torch.utils.flop_counter import FlopCounterMode

from fednode.clip import backbone, blocks
from fednode.clip.backbone import Backbone
from fednode.clip.settings import ModelSettings
from fednode.errors import ConfigError
from fednode.lab.bench import encoders, floor, measure, tasks
from fednode.lab.commands import bench_tuning as command
from tests.unit.clip import tiny

SMALL = (
    tasks.Task(name="small-text", method="text", classes=5, context_length=3),
    tasks.Task(name="small-cached", method="zerodfl", classes=5, context_length=3, images=10),
    tasks.Task(
        name="small-encoded", method="zerodfl", classes=5, context_length=3, images=10, encoded=True
    ),
    tasks.Task(
        name="small-feddpt", method="feddpt", classes=5, context_length=3, images=4, clients=3
    ),
    tasks.Task(
        name="small-plan-a", method="plan-a", classes=5, context_length=3, images=4, clients=2
    ),
    tasks.Task(
        name="small-plan-b", method="plan-b", classes=5, context_length=3, images=4, clients=2
    ),
)
CACHED = (
    tasks.Task(
        name="small-feddpt-cached",
        method="feddpt",
        classes=5,
        context_length=3,
        images=4,
        clients=3,
        cached=True,
    ),
    tasks.Task(
        name="small-plan-a-cached",
        method="plan-a",
        classes=5,
        context_length=3,
        images=4,
        clients=2,
        cached=True,
    ),
)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(measure, "MATRIX", 64)
    monkeypatch.setattr(measure, "TURN_S", 0.0)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")  # or the command would begin a process anew
    monkeypatch.setattr(tasks, "TASKS", SMALL)
    return tiny.register(tmp_path)


@pytest.fixture
def frozen(name: str) -> Backbone:
    return measure.random_model(name, "float32", "cpu")


def step(frozen: Backbone, task: tasks.Task, side: type[encoders.Encoders]) -> measure.Step:
    return measure.Step(frozen, tasks.inputs(frozen, task), side)


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_both_sides_have_equal_loss_and_gradient(frozen: Backbone, task: tasks.Task) -> None:
    theirs, mine = (step(frozen, task, side).run() for side in (encoders.Plain, encoders.Ours))
    assert mine[0] == pytest.approx(theirs[0], rel=1e-6, abs=1e-6)
    assert len(mine[1]) == len(tasks.inputs(frozen, task).start)
    for ours, other in zip(mine[1], theirs[1], strict=True):
        assert (ours - other).abs().max() < 1e-4 * other.abs().max()


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_both_sides_are_together_after_fifty_steps(frozen: Backbone, task: tasks.Task) -> None:
    sides = [step(frozen, task, side) for side in (encoders.Plain, encoders.Ours)]
    losses = [[side.run()[0] for _ in range(50)] for side in sides]
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    for name, start in tasks.inputs(frozen, task).start.items():
        theirs, mine = (side.prompts[name] for side in sides)
        moved = (theirs - start).norm()
        assert moved > 0
        assert (mine - theirs).norm() < 1e-3 * max(moved, theirs.norm()), name


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_the_floor_lies_below_what_torch_counts_of_ours(
    frozen: Backbone, task: tasks.Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_ONEDNN", False)  # or torch would not see the products
    given = tasks.inputs(frozen, task)
    counted = []
    for side in (encoders.Plain, encoders.Ours):
        one = measure.Step(frozen, given, side)
        with FlopCounterMode(display=False) as counter:
            one.run()
        counted.append(counter.get_total_flops())
    least = floor.operations(frozen, given)
    assert 0.75 * counted[1] < least < 1.02 * counted[1]
    assert least < counted[0] / 1.2
    # torch counts attention's scores twice, and not what it runs whole where no gradient is asked.
    assert floor.plain_operations(frozen, given) > 0.95 * counted[0]


def hybrid() -> Backbone:
    preprocessing = merge_preprocess_dict(PreprocessCfg(), {"size": 64})
    settings = ModelSettings(device="cpu")
    return backbone.wrap(tiny.hybrid(), preprocessing, SimpleTokenizer(), "tiny", settings)


def test_the_cached_rows_compare_equal_bits(name: str) -> None:
    assert name
    frozen = hybrid()
    found = {row.name: row for row in measure.rows(frozen, (*SMALL, *CACHED), 1)}
    assert len(found) == len(SMALL) + len(CACHED)
    for task in CACHED:
        assert found[task.name].difference == 0.0
        assert not found[task.name].judged
        given = tasks.inputs(frozen, task)
        assert floor.operations(frozen, given, cached=True) < 0.9 * floor.operations(frozen, given)
    assert found["small-text"].judged
    assert not found["small-feddpt"].judged, "convolutions do not run at the rate of products"
    assert found["small-feddpt"].difference < 1e-3


def test_a_model_that_keeps_pixels_has_no_cached_rows(name: str, tmp_path: Path) -> None:
    assert name
    frozen = measure.random_model(tiny.register(tmp_path, patch_size=2), "float32", "cpu")
    assert [row.name for row in measure.rows(frozen, (SMALL[0], *CACHED), 1)] == ["small-text"]


def test_the_floor_of_one_text_by_hand() -> None:
    tower = floor.Tower(width=10, layers=2)
    # Block 1: 3 rows through all twelve squares; block 2: keys and values of 3, the rest of one.
    linears = 2 * 100 * (12 * 3 + 2 * 3 + 10)
    pairs = 4 * 10 * (6 + 3)
    sizes = (3, 6, 1, 3, 0)
    assert tower.forward(*sizes) == linears + pairs
    assert tower.backward(*sizes, 2) == linears + 2 * pairs - 2 * 100 * 3 * 2


def test_rows_hold_what_they_say(frozen: Backbone) -> None:
    for row in measure.rows(frozen, SMALL[:2], 1):
        assert row.ratio == pytest.approx(row.reference_s / row.ours_s)
        assert row.floor_share == pytest.approx(row.floor_s / row.ours_s)
        assert row.difference < 1e-4


def test_whole_texts_are_compared_with_open_clip_s_own(name: str, tmp_path: Path) -> None:
    """A tower whose tokens see those behind them: fednode leaves no token out, nor adds any."""
    assert name
    frozen = measure.random_model(
        tiny.register(tmp_path, {"no_causal_mask": True}), "float32", "cpu"
    )
    assert not frozen.text.shares
    found = [row.name for row in measure.rows(frozen, SMALL, 1)]
    assert found == ["small-text", "small-cached", "small-encoded"]
    theirs, mine = (step(frozen, SMALL[0], side).run() for side in (encoders.Plain, encoders.Ours))
    assert mine[0] == pytest.approx(theirs[0], rel=1e-6, abs=1e-6)
    for ours, other in zip(mine[1], theirs[1], strict=True):
        assert (ours - other).abs().max() < 1e-4 * other.abs().max()
    given = tasks.inputs(frozen, SMALL[0])
    assert floor.operations(frozen, given) <= floor.plain_operations(frozen, given)


def test_memory_is_measured_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    assert measure._peak(lambda: worked.append(1), torch.device("cpu")) is None
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3_000_000)
    assert measure._peak(lambda: worked.append(2), torch.device("cuda:0")) == 3.0
    assert worked == [1, 2]


def test_short_steps_fill_a_turn(frozen: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that goes on 0.3 s with each look, 1 s is over after two steps."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.3
        return now[0]

    taken: list[type[encoders.Encoders]] = []
    run = measure.Step.run

    def spy(step: measure.Step) -> object:
        taken.append(type(step._encoders))
        return run(step)

    monkeypatch.setattr(measure, "TURN_S", 1.0)
    monkeypatch.setattr("time.perf_counter", clock)
    monkeypatch.setattr(measure.Step, "run", spy)
    row = measure.measure(frozen, SMALL[0], 2)
    plain, ours = encoders.Plain, encoders.Ours
    assert taken == [plain, ours, plain, plain, ours, ours, plain, plain, ours, ours]
    assert row.ours_s == pytest.approx(0.3)


def test_a_model_without_a_vision_transformer_has_fewer_rows(name: str, tmp_path: Path) -> None:
    assert name
    resnet = tiny.register(tmp_path, layers=[1, 1, 1, 1], width=16, patch_size=None)
    frozen = measure.random_model(resnet, "float32", "cpu")
    names = [row.name for row in measure.rows(frozen, SMALL, 1)]
    assert names == ["small-text", "small-cached", "small-encoded"]


def test_bfloat16_rows_are_named_so_and_near(name: str) -> None:
    frozen = measure.random_model(name, "bfloat16", "cpu")
    found = list(measure.rows(frozen, SMALL, 1))
    assert [row.name for row in found] == [f"{one.name}-bf16" for one in SMALL]
    assert all(row.difference < 0.3 for row in found)


def run(name: str, *words: str) -> tuple[str, BaseException | None]:
    found = CliRunner().invoke(command.tuning, ["--model", name, *words])
    return found.stdout, found.exception


def test_json_has_a_row_for_each_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "REFERENCE_SHARE", 0.0)
    words = ("--repeats", "1", "--format", "json", "--threads", "1")
    out, fault = run(name, *words)
    assert fault is None
    found = json.loads(out)
    assert [row["name"] for row in found["rows"]] == [
        *(one.name for one in SMALL),
        *(f"{one.name}-bf16" for one in SMALL),
    ]
    assert {"reference_s", "ours_s", "ratio", "floor_s"} <= set(found["rows"][0])


def test_a_sweep_is_drawn(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "REFERENCE_SHARE", 0.0)
    monkeypatch.setattr(tasks, "SWEEPS", {"classes": SMALL[:2], "shots": (), "domains": ()})
    picture = tmp_path / "sweep.png"
    words = ("--sweep", "classes", "--repeats", "1", "--no-bf16", "--plot", str(picture))
    out, fault = run(name, *words)
    assert fault is None
    assert "small-cached" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    _, fault = run(name, *words[:-1], str(tmp_path / "absent" / "sweep.png"))
    assert "cannot be written" in str(fault)


def test_one_row_can_be_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "REFERENCE_SHARE", 0.0)
    out, fault = run(name, "--only", "small-text", "--repeats", "1", "--no-bf16")
    assert fault is None
    assert "small-text" in out
    assert "small-cached" not in out
    _, fault = run(name, "--only", "nonsense")
    assert "There is no row 'nonsense'; there are small-text, small-cached" in str(fault)


def test_a_slow_reference_voids_the_ratios(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "REFERENCE_SHARE", 1e9)
    out, fault = run(name, "--repeats", "1", "--threads", "1", "--no-bf16")
    assert isinstance(fault, ConfigError)
    assert "are void" in str(fault)
    assert "tiny-test-model" in out


def test_a_process_is_begun_anew_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "execve", lambda path, words, env: begun.append((words, env)))
    for name in command.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    command._keep_memory()
    ((words, env),) = begun
    assert words[1:3] == ["-m", "fednode.cli"]
    assert command.ALLOCATOR.items() <= env.items()
    for name, value in command.ALLOCATOR.items():
        monkeypatch.setenv(name, value)
    command._keep_memory()
    assert len(begun) == 1


def test_an_unknown_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "0")
    _, fault = run("ViT-Z-1")
    assert "There is no architecture 'ViT-Z-1'" in str(fault)
    _, fault = run("ViT-B-16", "--repeats", "0")
    assert "--repeats" in str(fault)
