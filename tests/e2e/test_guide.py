"""The guides for policies and what they tune, followed from their text alone, in another folder."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fednode import registry
from fednode.core.types import PolicyState
from fednode.errors import ConfigError
from fednode.lab.experiment.files import load_experiment, settings_of
from fednode.policy import Batch, Job, JobInputs, Tensors
from fednode.settings.read import load_settings
from fednode.storage.store import read_snapshot
from fednode.testing import small_learner

pytestmark = pytest.mark.e2e
DOCS = Path(__file__).resolve().parents[2] / "docs"
ROUNDS = 4


def installed(guide: str, folder: Path) -> Path:
    """Write the guide's files into a folder, installed as pip would have done it (offline)."""
    text = (DOCS / guide).read_text()
    for name, block in re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", text, re.S):
        (folder / name).write_text(block)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1\n"
    )
    entries = configparser.ConfigParser()
    entries.read_dict(project["entry-points"])
    with (about / "entry_points.txt").open("w") as file:
        entries.write(file)
    return folder


@pytest.fixture
def at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let this process and its children find packages in the folder, as an environment's own."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    registry._entries.cache_clear()
    before = set(sys.modules)
    yield tmp_path
    registry._entries.cache_clear()
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == tmp_path:
            del sys.modules[name]


@pytest.fixture
def fedavgm(at_hand: Path) -> Path:
    return installed("policies.md", at_hand)


@pytest.fixture
def prograd(at_hand: Path) -> Path:
    return installed("objectives.md", at_hand)


def keeps_its_contract(file: Path) -> bool:
    """Run a file of tests as `pytest` would, in this process, which has torch already."""
    words = ("--rootdir", str(file.parent), "-c", os.devnull)
    plugins = ("cacheprovider", "xdist", "faulthandler")
    without = [word for name in plugins for word in ("-p", f"no:{name}")]
    return pytest.main(["-q", *words, *without, str(file)]) == pytest.ExitCode.OK


def mesh(folder: Path, *words: str) -> list[PolicyState]:
    """Run a mesh of daemons; return what each node holds at the end."""
    ended = subprocess.run(
        [sys.executable, "-m", "fednode.cli", "mesh", *words, "--run-dir", str(folder / "run")],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [read_snapshot(one).policy for one in sorted((folder / "run").glob("node-?"))]


def test_the_policy_runs_in_a_mesh_through_its_entry_point(fedavgm: Path) -> None:
    found = mesh(
        fedavgm, "--nodes", "3", "--rounds", str(ROUNDS), "--policy", "fedavgm", "--set",
        "policy.momentum=0.8", "--set", "tuning.kind=closed-form", "--set",
        "policy.wire_dtype=int8",
    )  # fmt: skip
    assert [one.round for one in found] == [ROUNDS] * 3
    assert len({one.tensors.digest for one in found}) == 1, "all nodes hold the same bits"
    assert sorted(found[0].arrays) == ["own/context", "velocity/context"]


def test_the_policy_keeps_the_contract(fedavgm: Path) -> None:
    assert keeps_its_contract(fedavgm / "test_fedavgm.py")


def test_the_experiment_compares_it_at_equal_vectors(fedavgm: Path) -> None:
    (text,) = re.findall(r"```yaml\n(# my\.yaml.*?)```", (DOCS / "policies.md").read_text(), re.S)
    (fedavgm / "my.yaml").write_text(text)
    made = load_experiment(fedavgm / "my.yaml")
    tunings = [settings_of(made, one, "my.yaml").tuning for one in made.methods]
    assert len(tunings) == 3
    assert len({(one.context_length, one.lr, one.epochs, one.optimizer) for one in tunings}) == 1


def test_its_settings_are_checked_like_the_daemons_own(fedavgm: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.momentum is 2; it must be from 0 to 0\.99"):
        load_settings(None, {}, ["policy.name=fedavgm", "policy.momentum=2"])


def test_a_loss_of_its_own_runs_in_a_mesh_through_its_entry_point(prograd: Path) -> None:
    found = mesh(
        prograd, "--nodes", "2", "--rounds", "2", "--policy", "prograd", "--set",
        "policy.strength=0.8", "--set", "data.shots=2", "--set", "tuning.context_length=4",
    )  # fmt: skip
    assert [one.round for one in found] == [2, 2]
    assert len({one.tensors.digest for one in found}) == 1, "all nodes hold the same bits"


def test_what_it_tunes_keeps_the_learners_contract(prograd: Path) -> None:
    assert keeps_its_contract(prograd / "test_prograd.py")


def test_its_gradient_is_prograds(prograd: Path) -> None:
    aligned = importlib.import_module("prograd").aligned
    g = torch.Generator().manual_seed(3)
    for _ in range(50):
        own, general = torch.randn(2, 6, generator=g, dtype=torch.float64)
        full, half = aligned(own, general, 1.0), aligned(own, general, 0.5)
        if own @ general >= 0:
            assert torch.equal(full, own)
            assert torch.equal(half, own)
            continue
        # The closest vector to `own` that does not work against `general`.
        unit = general / general.norm()
        assert torch.allclose(full, own - (own @ unit) * unit)
        assert abs(float(full @ general)) < 1e-12
        assert torch.allclose(half, (own + full) / 2)


def test_its_loss_is_prograds(prograd: Path) -> None:
    prograd_module = importlib.import_module("prograd")
    config = prograd_module.ProGradConfig(strength=0.7)
    learner: Any = small_learner(prograd_module.ProGradPrompts, config, context_length=4)
    module = learner._module
    clip, classes = module.clip, learner.classes
    draw = torch.Generator().manual_seed(1)
    width = module.handwritten(classes).shape[1]
    features = torch.nn.functional.normalize(torch.randn(9, width, generator=draw), dim=1)
    labels = torch.arange(9) % len(classes)
    prompt = torch.tensor(learner.initial(1)["context"]).requires_grad_()
    job = Job(round=1, stage="prompts", tensors=Tensors(), seed=1)
    inputs = JobInputs(job, {"context": prompt}, {}, {}, classes)
    found = module.loss(Batch(features=features, labels=labels), inputs)
    (mine,) = torch.autograd.grad(found, prompt)

    texts = clip.text.encode(module.texts.tokens(classes, 4), prompt)
    p = (clip.logit_scale * features @ texts.T).softmax(dim=1)
    z = module.zero_shot(features, classes).softmax(dim=1)
    entropy = -p[torch.arange(9), labels].log().mean()
    general = (z * (z / p).log()).sum(dim=1).mean()
    (own,) = torch.autograd.grad(entropy, prompt, retain_graph=True)
    (known,) = torch.autograd.grad(general, prompt)
    assert torch.isclose(found, entropy)
    assert torch.allclose(mine, prograd_module.aligned(own, known, 0.7), atol=1e-6)
