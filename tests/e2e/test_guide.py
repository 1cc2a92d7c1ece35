"""The guide for a method of one's own (docs/methods.md), followed from its text in a new folder."""

from __future__ import annotations

import configparser
import importlib
import os
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fednode import registry
from fednode.core.types import PolicyState
from fednode.errors import ConfigError
from fednode.lab.experiment.files import load_experiment, settings_of
from fednode.policy import (
    Batch,
    Contribution,
    InboxMessage,
    Job,
    JobInputs,
    MethodState,
    Round,
    Tensors,
)
from fednode.settings.read import load_settings
from fednode.testing import frame, small_learner
from tests.unit.storage.stored import read_snapshot

pytestmark = pytest.mark.e2e
TEXT = (Path(__file__).resolve().parents[2] / "docs/methods.md").read_text(encoding="utf-8")
LINES_MAX = 60
"""Most lines of the example, imports and header among them."""
ROUNDS = 4


def blocks(language: str) -> dict[str, str]:
    return dict(re.findall(rf"```{language}\n# (\S+)\n(.*?)```", TEXT, re.S))


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the guide's files into a folder, installed as pip would have done it (offline)."""
    for name, block in {**blocks("python"), **blocks("toml"), **blocks("yaml")}.items():
        (tmp_path / name).write_text(block)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    about = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1\n"
    )
    entries = configparser.ConfigParser()
    entries.read_dict(project["entry-points"])
    with (about / "entry_points.txt").open("w") as file:
        entries.write(file)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(registry, "_ADDED", {})
    registry._entries.cache_clear()
    before = set(sys.modules)
    yield tmp_path
    registry._entries.cache_clear()
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
            del sys.modules[name]


def mesh(folder: Path, *words: str) -> list[PolicyState]:
    """Run a mesh of daemons; return what each node holds at the end."""
    ended = subprocess.run(
        [sys.executable, "-m", "fednode.cli", "mesh", *words, "--run-dir", str(folder / "run")],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [read_snapshot(one).policy for one in sorted((folder / "run").glob("node-?"))]


def test_the_example_is_one_short_file() -> None:
    code = blocks("python")
    assert len(code["mymethod.py"].splitlines()) <= LINES_MAX
    assert len(code["gossipmean.py"].splitlines()) <= LINES_MAX


def test_it_runs_in_a_mesh_through_its_entry_point(guide: Path) -> None:
    chosen = (
        "policy.momentum=0.8", "policy.wire_dtype=int8", "tuning.context_length=4",
        "data.classes=[accordion, barrel]", "data.shots=2", "data.test=0.1",
    )  # fmt: skip
    sets = (word for one in chosen for word in ("--set", one))
    words = ("--nodes", "3", "--rounds", str(ROUNDS), "--policy", "fedavgm")
    found = mesh(guide, *words, *sets)
    assert [one.round for one in found] == [ROUNDS] * 3
    assert len({one.tensors.digest for one in found}) == 1, "all nodes hold the same bits"
    assert sorted(found[0].arrays) == ["own/context", "velocity/context"]


def test_it_keeps_the_contracts(guide: Path) -> None:
    scope = "asyncio_default_fixture_loop_scope=function"
    words = ("--rootdir", str(guide), "-c", os.devnull, "-o", scope)
    plugins = ("cacheprovider", "xdist", "faulthandler")
    without = [word for name in plugins for word in ("-p", f"no:{name}")]
    # In this process, which has torch already.
    ended = pytest.main(["-q", *words, *without, str(guide / "test_mymethod.py")])
    assert ended == pytest.ExitCode.OK


def test_the_experiment_compares_it_at_equal_vectors(guide: Path) -> None:
    made = load_experiment(guide / "my.yaml")
    settings = [settings_of(made, one, "my.yaml") for one in made.methods]
    assert [one.policy.name for one in settings] == ["fedavgm", "promptfl", "local"]
    assert settings[0].policy.config.momentum == 0.8
    assert len({one.tuning for one in settings}) == 1


@pytest.mark.usefixtures("guide")
def test_its_settings_are_checked_like_the_daemons_own() -> None:
    with pytest.raises(ConfigError, match=r"policy\.momentum is 2; it must be from 0 to 0\.99"):
        load_settings(None, {}, ["policy.name=fedavgm", "policy.momentum=2"])


@pytest.mark.usefixtures("guide")
def test_its_merge_is_fedavgms() -> None:
    """Three merges of drawn prompts against v <- m v + (mean - x), x <- x + v in float64."""
    module: Any = importlib.import_module("mymethod")
    method = module.FedAvgM(module.FedAvgMConfig(momentum=0.7, weights="equal"), frame("fedavgm"))
    draw = np.random.default_rng(1)
    x, v = draw.normal(size=(3, 2)), np.zeros((3, 2))
    held: MethodState = method.first(Tensors({"context": x}))
    for number in range(1, 4):
        given = [Contribution(name, Tensors({"context": draw.normal(size=(3, 2))}), 1)
                 for name in "abc"]  # fmt: skip
        mean = np.mean([one.tensors["context"].astype(np.float64) for one in given], axis=0)
        v = 0.7 * v + (mean - x)
        x = x + v
        held = method.merge(Round(number, "prompts", held, held), given)
        assert np.allclose(held.shared["context"], x, atol=1e-5)


@pytest.mark.usefixtures("guide")
def test_its_loss_is_the_smoothed_cross_entropy() -> None:
    module: Any = importlib.import_module("mymethod")
    config = module.FedAvgMConfig(smoothing=0.3)
    learner: Any = small_learner(module.FedAvgM, config, context_length=4)
    prompts, classes = learner.module, learner.classes
    draw = torch.Generator().manual_seed(1)
    width = prompts.handwritten(classes).shape[1]
    features = torch.nn.functional.normalize(torch.randn(9, width, generator=draw), dim=1)
    labels = torch.arange(9) % len(classes)
    params = {"context": torch.tensor(learner.initial(1)["context"])}
    job = Job(round=1, stage="prompts", tensors=Tensors(), seed=1)
    inputs = JobInputs(job, params, {}, {}, classes)
    found = prompts.loss(Batch(image_features=features, targets=labels), inputs)
    logits = prompts.clip_logits(features, prompts.encode(params["context"], classes))
    log_p = logits.log_softmax(dim=1)
    truth = log_p[torch.arange(9), labels].mean()
    assert torch.isclose(found, -0.7 * truth - 0.3 * log_p.mean())


@pytest.mark.usefixtures("guide")
def test_two_recipients_get_the_prompt_and_the_mix_is_the_mean() -> None:
    module: Any = importlib.import_module("gossipmean")
    method = module.GossipMean(module.GossipMeanConfig(), frame("gossipmean"))
    counts = dict.fromkeys("bcd", 0)
    for seed in range(300):
        drawn = method.recipients(method.config.recipients, "bcd", {}, random.Random(seed))
        assert len({*drawn}) == 2
        counts = {name: count + (name in drawn) for name, count in counts.items()}
    assert all(160 < count < 240 for count in counts.values())
    own, *others = (Tensors({"context": [[float(at), 1.0]]}) for at in (1, 4, 7))
    inbox = [InboxMessage(str(at), 1, tensors) for at, tensors in enumerate(others)]
    mixed = own
    for change in method.mix(own, inbox, random.Random(1)):
        mixed = change.apply(mixed)
    assert np.allclose(mixed["context"], [[4.0, 1.0]])
