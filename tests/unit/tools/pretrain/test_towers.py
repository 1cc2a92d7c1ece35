"""The image side: the same numbers in the recipe, in the finished model and in its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fednode.clip import mini
from fednode.clip.trunk import Trunk, TrunkSettings
from tests.unit.clip import tiny
from tests.unit.tools.pretrain import world as world
from tools.pretrain import align, hybrid, teachers, tower
from tools.pretrain.align import Aligned, Views
from tools.pretrain.sources import Source
from tools.pretrain.space import WIDTH

TEXTS = ("a photo of a dog.", "a car", "golden retriever")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def images(count: int = 2) -> Tensor:
    return numbers(count, 3, 192, 192, seed=9)


@torch.no_grad()
def test_batch_normalisation_is_folded_into_convolutions() -> None:
    torch.manual_seed(0)
    theirs: Any = timm.create_model("tf_efficientnet_lite2", pretrained=False).double().eval()
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            statistics: Any = module
            statistics.running_mean.normal_(0, 0.1)
            statistics.running_var.uniform_(0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    ours = Trunk(TrunkSettings.read(teachers.LITE2), 8).double()
    teachers.fold(ours, theirs)
    pixels = numbers(1, 3, 64, 64).double()
    grid, wanted = ours.base(pixels), theirs.forward_features(pixels)
    for branch in (ours.tuned, ours.known):
        torch.testing.assert_close(branch(grid), wanted, rtol=1e-9, atol=1e-9)
    said = ours.classifier(ours.known(grid).mean((2, 3)))
    torch.testing.assert_close(said, theirs(pixels), rtol=1e-9, atol=1e-9)


def aligned(width: int = WIDTH) -> Aligned:
    """Return an aligned trunk in float64 whose every part is random."""
    names = F.normalize(numbers(world.SMALL_TRUNK["classes"], width, seed=1), dim=-1)
    made = Aligned(world.trunk(8), names, 3 * numbers(50, 1280, seed=2).relu())
    torch.manual_seed(4)
    for parameter in (made.linear.weight, made.linear.bias):
        nn.init.normal_(parameter, std=0.1)
    for branch in made.tuned.parameters():
        branch.data += 0.01 * torch.randn_like(branch)
    return made.double()


@torch.no_grad()
def test_the_finished_trunk_says_what_was_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "trunk", lambda width: world.trunk(width).double())
    made = aligned()
    finished = hybrid.finished_trunk(made)
    pixels = images().double()
    grid = finished.base(pixels)
    known = finished.known(grid).mean((2, 3))
    wanted = made.token(made.tuned(grid).mean((2, 3)), known)
    token = finished(pixels)[:, :, -1, 0]
    torch.testing.assert_close(token, wanted, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_aligning_goes_on_where_a_finished_trunk_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "trunk", lambda width: world.trunk(width).double())
    first = aligned()
    finished = hybrid.finished_trunk(first)
    names = torch.zeros(world.SMALL_TRUNK["classes"], WIDTH)
    second = Aligned(world.trunk(8), names, numbers(20, 1280, seed=7)).double()
    align.take(second, finished)
    grid = finished.base(images().double())
    found, wanted = (one(one.tuned(grid).mean((2, 3))) for one in (second, first))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_the_alignment_s_loss_is_cross_entropy_and_distance() -> None:
    made = aligned(16)
    out, target = numbers(5, 16, seed=3).double(), numbers(5, 9, seed=4).double().softmax(-1)
    texts = F.normalize(numbers(9, 16, seed=5).double(), dim=-1)
    o, t, x = (one.numpy() for one in (out, target, texts))
    total = 0.0
    for i in range(5):
        unit = o[i] / np.linalg.norm(o[i])
        logits = np.exp(3.0) * x @ unit
        total -= t[i] @ (logits - np.log(np.exp(logits).sum()))
        meant = t[i] @ x
        total += 3 * (1 - unit @ meant / np.linalg.norm(meant))
    assert float(made.loss(out, target, texts)) == pytest.approx(total / 5, rel=1e-9)


@torch.no_grad()
def test_tokens_go_through_the_transformer_as_in_open_clip() -> None:
    visual: Any = tiny.hybrid(2).visual.double()
    pixels = numbers(3, 3, 64, 64).double()
    tokens = visual.conv1(pixels)[..., 0].transpose(1, 2)
    torch.testing.assert_close(hybrid.encode(visual, tokens), visual(pixels), rtol=1e-9, atol=1e-10)
    # Tokens that are left out are as if they had never been there: their order does not matter.
    kept = torch.tensor([0, 5, 16])
    swapped = hybrid.encode(visual, tokens, kept.flip(0))
    torch.testing.assert_close(hybrid.encode(visual, tokens, kept), swapped)
    assert not torch.allclose(swapped, visual(pixels))


def views(count: int = 24, classes: int = 3) -> Views:
    """Return views of three sources whose grids say what their targets are."""
    picture = torch.arange(count)
    target = F.one_hot(picture // 3 % classes, classes).float()
    grid = (target @ numbers(classes, 12 * 24 * 24)).reshape(count, 12, 24, 24)
    known = target @ numbers(classes, 1280, seed=1) + 0.1 * numbers(count, 1280, seed=2)
    rows = dict(zip(align.SHARES, picture.reshape(-1, 3).T, strict=True))
    train, aside = (
        {name: one[part] for name, one in rows.items()} for part in (slice(3, None), slice(3))
    )
    return Views(grid.half(), known.half(), picture, target, train, aside)


@pytest.fixture
def beginning(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Aligned]:
    """Return what makes an untrained alignment, always the same."""
    monkeypatch.setattr(torch, "compile", lambda module: module)  # minutes of a C++ compiler

    def make() -> Aligned:
        torch.manual_seed(0)
        made = Aligned(world.trunk(8), torch.zeros(7, 8), views().known)
        for parameter in made.tuned.parameters():
            parameter.requires_grad_()
        return made

    return make


def test_the_linear_map_learns_and_leaves_the_trunk_alone(
    beginning: Callable[[], Aligned], tmp_path: Path
) -> None:
    made, seen, texts = beginning(), views(), torch.eye(3, 8)
    before = {name: one.clone() for name, one in made.tuned.state_dict().items()}
    align.map_linearly(made, seen, texts, 30, tmp_path / "linear.pt")

    def features(rows: Tensor) -> Tensor:
        found: Tensor = made(seen.known[rows].float())
        return found

    assert set(align.accuracies(features, seen, texts, 9).values()) == {1.0}
    assert all(torch.equal(one, before[name]) for name, one in made.tuned.state_dict().items())


def test_tuning_changes_the_tuned_branch_alone_and_resumes(
    beginning: Callable[[], Aligned], tmp_path: Path
) -> None:
    made, seen, texts = beginning(), views(), torch.eye(3, 8)
    before = {name: one.clone() for name, one in made.classifier.state_dict().items()}
    start = {name: one.clone() for name, one in made.tuned.state_dict().items()}
    path = tmp_path / "tune.pt"
    align.tune(made, seen, texts, 2, path, batch=12, rate=1e-3)
    assert not any(torch.equal(one, start[name]) for name, one in made.tuned.state_dict().items())
    for name, one in made.classifier.state_dict().items():
        assert torch.equal(one, before[name])
    again = beginning()
    align.tune(again, seen, texts, 2, path, batch=12, rate=1e-3)  # all steps are done
    for name, one in again.state_dict().items():
        assert torch.equal(one, made.state_dict()[name])


def test_held_out_pictures_are_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "targets", lambda shown, *_: torch.ones(len(shown), 1))
    shown = [Source(str(at), "dog", ("line",) * (1 + at % 3), None) for at in range(40)]
    rows = sum(len(one.views) for one in shown)
    part: Any = (shown, torch.zeros(rows, 1), torch.zeros(rows, 4))
    nothing: Any = None
    found = align.gather({"coco": part, "quick": part}, nothing, nothing, {})
    assert len(found.picture) == 2 * rows
    for at, name in enumerate(("coco", "quick")):
        aside, train = (
            set(found.picture[one[name]].tolist()) for one in (found.held_out, found.train)
        )
        assert aside == {at * 40, at * 40 + 15, at * 40 + 30}
        assert aside | train == set(range(at * 40, at * 40 + 40))
        assert not aside & train
        assert len(found.held_out[name]) + len(found.train[name]) == rows


def whole(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, tower.Tower, tower.Tokens]:
    """Return a small model with a taught text tower, that tower and its tokens."""
    world.shrink(monkeypatch)
    tokens = tower.Tokens(TEXTS)
    torch.manual_seed(3)
    model: Any = hybrid.model_of(world.trunk(WIDTH))
    least = F.normalize(torch.randn(WIDTH), dim=0)
    hybrid.begin(model.visual, least)
    taught = tower.Tower(len(tokens.index))
    hybrid.take_texts(model, taught, tokens, 2.5)
    return model.eval(), taught.eval(), tokens


def padded(tokens: tower.Tokens) -> Tensor:
    """Return ids [n, 77] as open_clip's tokenizer gives them."""
    rows, ends = tokens.batch(TEXTS)
    ids = torch.zeros(len(TEXTS), 77, dtype=torch.long)
    for at, end in enumerate(ends.tolist()):
        ids[at, : end + 1] = tokens.index[rows[at, : end + 1]]
    return ids


@torch.no_grad()
def test_a_model_is_exported_and_gone_on_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, taught, tokens = whole(monkeypatch)
    read = model.encode_text(padded(tokens), normalize=True)
    torch.testing.assert_close(read, taught(*tokens.batch(TEXTS)), rtol=1e-5, atol=1e-6)
    assert float(model.logit_scale) == 2.5

    mini.save(tmp_path, model, hybrid.CONFIG, tokens.index)
    found, config, seen = mini.expand(tmp_path)
    assert config["trunk_cfg"] == world.SMALL_TRUNK
    assert seen == set(tokens.index.tolist())
    shown = found.encode_text(padded(tokens), normalize=True)
    torch.testing.assert_close(shown, read, rtol=0, atol=5e-3)
    looked = [F.normalize(one.encode_image(images()), dim=-1) for one in (found, model)]
    torch.testing.assert_close(*looked, rtol=0, atol=5e-3)

    # A tower that begins at the files, with more tokens than they have, says the same.
    more = tower.Tokens([*TEXTS, "an unheard-of zebra"])
    torch.manual_seed(5)
    begun = tower.Tower(len(more.index))
    start = begun.text.token_embedding.weight.detach().clone()
    tower.take(begun, more, found)
    torch.testing.assert_close(begun(*more.batch(TEXTS)), shown, rtol=1e-5, atol=1e-6)
    new = [at for at, one in enumerate(more.index.tolist()) if one not in seen]
    assert new
    assert torch.equal(begun.text.token_embedding.weight[new], start[new])


@torch.no_grad()
def test_a_transformer_begins_near_its_concept_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid, "CONFIG", world.SMALL)
    torch.manual_seed(6)
    visual: Any = hybrid.model_of(world.trunk(WIDTH)).visual
    flat = torch.eye(WIDTH) - 1 / WIDTH
    least = F.normalize(numbers(WIDTH) @ flat, dim=0)
    hybrid.begin(visual, least)
    away = flat - torch.outer(least, least)
    tokens = F.normalize(numbers(8, hybrid.CELLS + 1, WIDTH, seed=8) @ away, dim=-1)
    near = F.cosine_similarity(hybrid.encode(visual, tokens)[:, None], tokens, dim=-1)
    assert near.argmax(1).tolist() == [hybrid.CELLS] * len(tokens)
    assert float((near[:, -1] - near[:, :-1].amax(1)).min()) > 0.1


def test_fitting_leaves_the_trunk_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hybrid, "CONFIG", world.SMALL)
    torch.manual_seed(6)
    visual: Any = hybrid.model_of(world.trunk(WIDTH)).visual
    before = {name: one.clone() for name, one in visual.state_dict().items()}
    made, seen = aligned().float(), views()
    texts = F.normalize(numbers(3, WIDTH), dim=-1)
    path = tmp_path / "hybrid.pt"
    hybrid.fit(visual, made, seen, torch.arange(24), texts, texts[:3], 2, path, batch=6)
    changed = {
        name for name, one in visual.state_dict().items() if not torch.equal(one, before[name])
    }
    assert changed
    assert not [name for name in changed if name.startswith("conv1.")]
    again: Any = hybrid.model_of(world.trunk(WIDTH)).visual
    state = torch.load(path, weights_only=True)
    for name, part in hybrid.parts(again).items():
        part.load_state_dict(state[name])
    for name, one in again.state_dict().items():
        assert torch.equal(one, visual.state_dict()[name]), name
