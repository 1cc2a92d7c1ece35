"""Labels become captions through WordNet, and image files become arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image

from bootstrap.pretrain import captions, pack, sources, wordnet
from node.errors import DataError
from tests.unit.bootstrap import pretrain_world as world


@pytest.fixture(scope="module")
def encode() -> captions.Encode:
    return SimpleTokenizer().encode  # type: ignore[no-any-return]


@pytest.fixture
def words(tmp_path: Path) -> wordnet.WordNet:
    return wordnet.read_wordnet(world.write_wordnet(tmp_path / "wordnet"))


def test_ancestors_run_from_the_synset_to_the_root(words: wordnet.WordNet) -> None:
    assert words.ancestors(world.RETRIEVER) == (
        *(world.RETRIEVER, world.DOG, world.ANIMAL, world.ENTITY),
    )


def test_a_label_means_the_animal_and_not_the_dish(words: wordnet.WordNet) -> None:
    assert words.find("Lobster") == world.LOBSTER
    assert words.find("lobster", frozenset({wordnet.FOOD})) == world.LOBSTER_DISH
    assert words.find("no such noun") is None


@pytest.mark.parametrize(("plural", "word"), [("dogs", "dog"), ("men", "man"), ("gas", "gas")])
def test_plurals(words: wordnet.WordNet, plural: str, word: str) -> None:
    assert words.singular(plural) == word


def test_missing_wordnet_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.noun.*wordnet-base"):
        wordnet.read_wordnet(tmp_path)


def test_concepts_contain_hypernyms_but_not_the_too_general(words: wordnet.WordNet) -> None:
    concepts = captions.build_concepts(words, [world.RETRIEVER, world.CAR])
    named = [lemmas[0] for lemmas in concepts.lemmas]
    assert sorted(named) == ["animal", "car", "dog", "golden retriever"]
    row = named.index("golden retriever")
    assert {named[i] for i in np.flatnonzero(concepts.positive[row])} == {
        *("golden retriever", "dog", "animal")
    }
    dog = named.index("dog")
    assert not concepts.positive[dog, row]  # a dog need not be a golden retriever ...
    assert concepts.related[dog, row]  # ... but is no evidence against it
    assert concepts.index(np.array([world.DOG, -1, 5], np.int32)).tolist() == [dog, -1, -1]


def test_common_nouns_tie_unseen_names_to_concepts(
    words: wordnet.WordNet, encode: captions.Encode
) -> None:
    concepts = captions.build_concepts(words, [world.RETRIEVER])
    found = captions.common_nouns(words, encode, concepts)
    assert (world.GIRAFFE, "giraffe") in found
    assert "car" not in [word for _, word in found]  # nothing above it is a concept here


def test_composed_captions_equal_the_tokenizer(encode: captions.Encode) -> None:
    make = captions.Captioner(encode)
    for template in captions.TEMPLATES:
        for name in ("dog", "golden retriever", "african elephant"):
            text = template.replace("a {}", "an {}") if name[0] == "a" else template
            expected = [captions.SOT, *encode(text.format(name)), captions.EOT]
            assert make.compose(template, name) == expected


def test_touched_tokens_cover_every_generated_caption(encode: captions.Encode) -> None:
    make = captions.Captioner(encode)
    known = set(captions.touched_tokens(make, ["dog", "egg"]).tolist())
    for template in captions.TEMPLATES:
        assert known.issuperset(make.compose(template, "dog"))
        assert known.issuperset(make.compose(template, "egg"))


def test_tiny_imagenet_is_packed_with_its_labels(words: wordnet.WordNet, tmp_path: Path) -> None:
    folder = world.write_tiny_imagenet(tmp_path / "tiny", count=2)
    for source in sources.read_tiny_imagenet(folder, words):
        assert pack.pack(source, tmp_path / "packed") == 6
    assert pack.packed_names(tmp_path / "packed") == ["tiny-imagenet", "tiny-imagenet-held-out"]
    packed = pack.load(tmp_path / "packed", "tiny-imagenet")
    assert packed.images.shape == (6, 64, 64, 3)
    assert set(packed.labels[:, 0].tolist()) == set(world.COLOURS)
    assert (packed.labels[:, 1:] == -1).all()


def test_flickr_labels_are_nouns_that_captions_share(
    words: wordnet.WordNet, tmp_path: Path
) -> None:
    (source,) = sources.read_flickr8k(world.write_flickr8k(tmp_path), words)
    assert [p.labels for p in source.pictures] == [(world.DOG, world.MAN), (world.CAR,)]
    assert pack.pack(source, tmp_path / "packed") == 4  # cropped and squashed
    packed = pack.load(tmp_path / "packed", "flickr8k")
    assert packed.captions[0][0] == "A man and his dogs ."


def test_cifar_folders_and_emoji_names(words: wordnet.WordNet, tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / "cifar" / part / "automobile").mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "cifar" / part / "automobile/1.png")
    train, held = sources.read_cifar("cifar10", tmp_path / "cifar", words)
    assert (train.name, held.name) == ("cifar10", "cifar10-held-out")
    assert train.pictures[0].labels == (world.CAR,)
    emoji = tmp_path / "emoji"
    emoji.mkdir()
    Image.new("RGBA", (128, 128), (255, 0, 0, 0)).save(emoji / "emoji_u1f415.png")  # DOG
    (source,) = sources.read_noto_emoji(emoji, words)
    assert source.pictures[0].labels == (world.DOG,)
    pack.pack(source, tmp_path / "packed")
    packed = pack.load(tmp_path / "packed", "noto-emoji")
    assert (packed.images[0] == 255).all()  # transparent is white in the first view
    (tmp_path / "cifar/train/flurb").mkdir()
    with pytest.raises(DataError, match=r"flurb.*no such noun"):
        list(sources.read_cifar("cifar10", tmp_path / "cifar", words))


def test_unreadable_files_are_skipped_and_an_empty_source_is_an_error(
    words: wordnet.WordNet, tmp_path: Path
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    Image.new("RGB", (80, 70)).save(folder / "n02084071_dog.JPEG")
    (folder / "n02958343_car.JPEG").write_bytes(b"not an image")
    (source,) = sources.read_imagenet_samples(folder, words)
    assert pack.pack(source, tmp_path / "packed") == 2  # two views of the one image
    assert len(pack.load(tmp_path / "packed", "imagenet-samples").images) == 2
    (folder / "n02084071_dog.JPEG").write_bytes(b"neither")
    with pytest.raises(DataError, match="none of the 4 files"):
        pack.pack(source, tmp_path / "packed")


@pytest.mark.parametrize("name", sorted(sources.READERS))
def test_a_missing_folder_is_named(name: str, words: wordnet.WordNet, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent"):
        list(sources.READERS[name](tmp_path / "absent", words))


def test_a_torn_pack_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a packed source"):
        pack.load(tmp_path, "cifar10")
    with pytest.raises(DataError, match=r"run `python -m bootstrap\.pretrain pack` first"):
        pack.packed_names(tmp_path / "absent")
