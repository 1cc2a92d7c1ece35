"""Words have meanings, targets and vectors; the text tower reads them as open_clip does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fednode.errors import DataError
from tests.unit.tools.pretrain import world as world
from tools.pretrain import align, concepts, names, tower
from tools.pretrain.concepts import Concepts
from tools.pretrain.names import Texts
from tools.pretrain.sources import PHOTO_VIEWS, STROKE_VIEWS, Source
from tools.pretrain.space import WIDTH, Space
from tools.pretrain.wordnet import WordNet, read_wordnet

TEXTS = ("a photo of a dog.", "dog", "a sketch of a golden retriever, asleep.", "a")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WordNet:
    world.shrink(monkeypatch)
    return read_wordnet(world.write_wordnet(tmp_path / "wordnet"))


def test_wordnet_knows_meanings_ancestors_and_plurals(words: WordNet) -> None:
    assert words.find("Lobster") == world.LOBSTER
    assert words.find("entity") is None
    assert words.ancestors(world.RETRIEVER) == (
        world.RETRIEVER,
        world.DOG,
        world.ANIMAL,
        world.ENTITY,
    )
    assert [words.singular(one) for one in ("men", "dogs", "car", "blah")] == [
        "man",
        "dog",
        "car",
        "blah",
    ]


def test_a_folder_without_wordnet_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no WordNet file data.noun: install"):
        read_wordnet(tmp_path)


@pytest.fixture
def built(words: WordNet) -> Concepts:
    return concepts.build(words, {"dog", "man"}, ["car", "golden retriever", "toy dogs"])


def row(built: Concepts, target: torch.Tensor) -> dict[str, float]:
    return {built.texts[at]: round(float(target[at]), 4) for at in target.nonzero()[:, 0]}


def special(count: int) -> float:
    """Return the weight of a hypernym that covers so many of ImageNet's names."""
    return round(math.log(1000 / count) / math.log(1000), 4)


def test_a_concept_means_itself_and_what_it_is_a_kind_of(built: Concepts) -> None:
    # Seven names: retriever, giraffe, lobster, dog, primate are animals; retriever is a dog.
    assert row(built, built.words["dog"]) == {"dog": 1.0, "animal": special(5)}
    assert row(built, built.words["man"]) == {"man": 1.0, "person": 1.0}
    assert row(built, built.words["car"]) == {"car": 1.0}
    assert row(built, built.words["toy dogs"]) == {"toy dogs": 1.0, "animal": special(5)}
    retriever = {"golden retriever": 1.0, "dog": special(1), "animal": special(5)}
    assert row(built, built.words["golden retriever"]) == retriever
    assert row(built, built.names[0]) == retriever
    assert len(set(built.texts)) == len(built.texts)


def test_a_target_mixes_the_classifier_and_labels_by_eye(built: Concepts) -> None:
    shown = [
        Source("a.jpg", "", PHOTO_VIEWS, None),
        Source("b.jpg", "", PHOTO_VIEWS, None),
        Source("dog/0", "dog", STROKE_VIEWS, None),
    ]
    trunk = world.trunk(8)
    first = torch.randn(3, 1280, generator=torch.Generator().manual_seed(3)).half()
    found = align.targets(shown, first, trunk, built, {"b.jpg": ["car", "man"]})
    torch.testing.assert_close(found.sum(1), torch.ones(3))
    weight, bias = (
        one.double().numpy() for one in (trunk.classifier.weight, trunk.classifier.bias)
    )
    logits = first.double().numpy() @ weight.T + bias
    sure = np.exp(logits - logits.max(1, keepdims=True))
    sure /= sure.sum(1, keepdims=True)
    seen = sure @ built.names.double().numpy()
    seen /= seen.sum(1, keepdims=True)
    np.testing.assert_allclose(found[0], seen[0], atol=1e-6)
    label = (built.words["car"] + built.words["man"]).double().numpy()
    wanted = 0.4 * seen[1] + 0.6 * label / label.sum()
    np.testing.assert_allclose(found[1], wanted, atol=1e-6)
    dog = built.words["dog"]
    torch.testing.assert_close(found[2], dog / dog.sum())


def test_texts_are_concepts_then_nouns_then_sentences(
    words: WordNet, built: Concepts, tmp_path: Path
) -> None:
    found = names.collect(words, built.texts, tmp_path / "wordnet")
    assert found.names[: found.concepts] == built.texts
    assert {"beast", "auto", "adult male"} <= set(found.names[found.concepts :])
    assert "entity" not in found.names
    assert len(set(found.names)) == len(found.names)
    assert found.sentences[0] == f"a sketch of a {built.texts[0]}."
    glosses = found.sentences[2 * found.concepts :][:2]
    assert glosses == ("what person means", "what car means")
    plurals = found.sentences[2 * found.concepts + 2 :]
    assert {"a photo of a golden retrievers.", "a photo of a autos."} <= set(plurals)
    assert len(set(plurals)) == len(plurals)


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("dog", "dogs"),
        ("box", "boxes"),
        ("berry", "berries"),
        ("toy", "toys"),
        ("old man", "old men"),
    ],
)
def test_the_plural_of_a_name_is_that_of_its_last_word(words: WordNet, one: str, many: str) -> None:
    odd = replace(words, plurals={"men": "man"})
    assert odd.plural(one) == many


def test_the_space_is_flat_and_keeps_what_the_first_components_say() -> None:
    chance = torch.Generator().manual_seed(0)
    spread = torch.linspace(2, 0.05, 384)
    given = torch.randn(600, 384, generator=chance) * spread + 1
    space = Space.of(given, given[:100])
    found = space.put(given)
    assert found.shape == (600, WIDTH)
    torch.testing.assert_close(found.sum(1), torch.zeros(600), atol=2e-5, rtol=0)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(600))
    away = (given - given[:100].mean(0)).double().numpy()
    _, size, right = np.linalg.svd(away, full_matrices=False)
    kept = away @ right[: WIDTH - 1].T
    kept /= np.linalg.norm(kept, axis=1, keepdims=True)
    np.testing.assert_allclose((found @ found.T).numpy(), kept @ kept.T, atol=2e-5)
    share = (size[: WIDTH - 1] ** 2).sum() / (size**2).sum()
    assert space.kept == pytest.approx(share)


@pytest.fixture
def small_tower(monkeypatch: pytest.MonkeyPatch) -> tuple[tower.Tower, tower.Tokens]:
    monkeypatch.setattr(tower, "SETTINGS", world.SMALL_TEXT)
    tokens = tower.Tokens(TEXTS)
    torch.manual_seed(0)
    made = tower.Tower(len(tokens.index)).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made, tokens


@torch.no_grad()
def test_a_batch_is_read_like_open_clip_reads_padded_texts(
    small_tower: tuple[tower.Tower, tower.Tokens],
) -> None:
    made, tokens = small_tower
    rows, ends = tokens.batch(TEXTS)
    assert rows.shape[1] < made.text.context_length
    full = F.pad(rows, (0, made.text.context_length - rows.shape[1]))
    wanted = F.normalize(made.text(full), dim=-1)
    torch.testing.assert_close(made(rows, ends), wanted, rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_texts_that_are_read_by_length_come_back_in_their_order(
    small_tower: tuple[tower.Tower, tower.Tokens],
) -> None:
    made, tokens = small_tower
    texts = [*TEXTS, *TEXTS[::-1], TEXTS[0]]
    wanted = made(*tokens.batch(texts))
    for some in (9, 3, 1):
        found = tower.by_length(made, tokens, texts[:some])
        torch.testing.assert_close(found, wanted[:some], rtol=1e-10, atol=1e-12)


def test_a_name_that_ends_in_a_mark_fits_every_template() -> None:
    text = "jack-o'-lantern (carved)!"
    tokens = tower.Tokens([text])
    for template in (*names.ALIKE, *names.MANNERS):
        assert tokens.rows(template.format(text))[-1] == len(tokens.index) - 1


def test_tokens_are_those_that_texts_have(small_tower: tuple[tower.Tower, tower.Tokens]) -> None:
    _, tokens = small_tower
    rows, ends = tokens.batch(TEXTS)
    ids = tokens.index[rows[0, : int(ends[0]) + 1]].tolist()
    assert (ids[0], ids[-1]) == (49406, 49407)
    spelled = tower.strings(tokens)
    assert [spelled[at] for at in tokens.rows("a photo of a dog.")[1:-1]] == (
        ["a", "photo", "of", "a", "dog", "."]
    )
    long = tower.Tokens(["dog " * 99])
    assert len(long.rows("dog " * 99)) == tower.LONGEST


def test_the_table_begins_at_the_teacher_s_vectors(
    small_tower: tuple[tower.Tower, tower.Tokens],
) -> None:
    made, tokens = small_tower
    before = made.text.token_embedding.weight.detach().clone()
    vectors = F.normalize(torch.randn(len(tokens.index), WIDTH).double(), dim=-1)
    tower.begin(made, tokens, vectors)
    wanted = 0.02 * math.sqrt(WIDTH) * vectors + 0.1 * before
    torch.testing.assert_close(made.text.token_embedding.weight.detach(), wanted)


def test_the_tower_s_loss_is_distance_and_divergence() -> None:
    chance = torch.Generator().manual_seed(1)
    found, target = (F.normalize(torch.randn(9, 16, generator=chance), dim=-1) for _ in range(2))
    f, t = found.double().numpy(), target.double().numpy()
    near = np.mean([1 - f[i] @ t[i] for i in range(9)])
    apart = []
    for i in range(9):
        p, q = (np.exp(20 * np.array([one[i] @ t[j] for j in range(9)])) for one in (t, f))
        p, q = p / p.sum(), q / q.sum()
        apart.append(sum(p[j] * math.log(max(p[j], 1e-9) / q[j]) for j in range(9)))
    wanted = 5 * near + np.mean(apart)
    assert float(tower._loss(found, target)) == pytest.approx(wanted, rel=1e-5)
    assert float(tower._loss(target, target)) == pytest.approx(0, abs=1e-5)


def test_batches_are_drawn_by_the_chance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tower, "BATCH", 20)
    sentences = tuple(f"{'so ' * more}dog" for more in range(12))
    texts = Texts(("dog", "cat", "car", "a red car", "photo"), 2, sentences)
    pick = tower._Picker(tower.Tokens([*texts.names, *texts.sentences]), texts)
    chosen, which, read = pick.batch(np.random.default_rng([7, 1]))
    again = pick.batch(np.random.default_rng([7, 1]))
    assert chosen == again[0]
    assert torch.equal(which, again[1])
    assert torch.equal(read, again[2])
    assert chosen != pick.batch(np.random.default_rng([7, 2]))[0]
    assert (len(which), len(read), len(chosen)) == (12, 8, 20)
    assert (which[:6] < 2).all()
    assert (which[6:] >= 2).all()
    assert chosen[12:] == [sentences[int(one)] for one in read]
    for text, one in zip(chosen, which, strict=False):
        assert texts.names[int(one)] in text
