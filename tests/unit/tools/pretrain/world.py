"""A WordNet of a dozen nouns, a few pictures of each source, and a trunk of a few channels."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from fednode.clip.trunk import Trunk, TrunkSettings
from tools.pretrain import concepts, hybrid, teachers, tower
from tools.pretrain.styles import Picture

ENTITY, ANIMAL, DOG, RETRIEVER, GIRAFFE = 1740, 15388, 2084071, 2099601, 2439033
LOBSTER_DISH, LOBSTER, FOOD, CAR = 7792725, 1982650, 21265, 2958343
PERSON, MAN, PRIMATE, MAN_AS_PRIMATE = 7846, 10287213, 2469914, 2472293

# offset, lexicographer file, lemmas, hypernym
SYNSETS = (
    (ENTITY, 3, ("entity",), None),
    (PERSON, 3, ("person", "soul"), ENTITY),  # noun.Tops, as in WordNet
    (ANIMAL, 3, ("animal", "beast"), ENTITY),
    (FOOD, 3, ("food",), ENTITY),
    (LOBSTER, 5, ("lobster",), ANIMAL),
    (DOG, 5, ("dog", "domestic_dog"), ANIMAL),
    (RETRIEVER, 5, ("golden_retriever",), DOG),
    (GIRAFFE, 5, ("giraffe",), ANIMAL),
    (PRIMATE, 5, ("primate",), ANIMAL),
    (MAN_AS_PRIMATE, 5, ("homo", "man"), PRIMATE),
    (CAR, 6, ("car", "auto"), ENTITY),
    (LOBSTER_DISH, 13, ("lobster",), FOOD),
    (MAN, 18, ("man", "adult_male"), PERSON),
)
SENSES = {
    "entity": (ENTITY,),
    "person": (PERSON,),
    "soul": (PERSON,),
    "animal": (ANIMAL,),
    "beast": (ANIMAL,),
    "food": (FOOD,),
    "lobster": (LOBSTER_DISH, LOBSTER),
    "dog": (DOG,),
    "domestic_dog": (DOG,),
    "golden_retriever": (RETRIEVER,),
    "giraffe": (GIRAFFE,),
    "primate": (PRIMATE,),
    "homo": (MAN_AS_PRIMATE,),
    "car": (CAR,),
    "auto": (CAR,),
    "man": (MAN, MAN_AS_PRIMATE),
    "adult_male": (MAN,),
}
SMALL_TRUNK: Final[dict[str, Any]] = {
    "stem": 8,
    "base": [[1, 3, 1, 1, 8], [2, 3, 4, 2, 12]],
    "last": [[2, 5, 2, 2, 16], [1, 3, 2, 2, 16]],
    "head": 1280,
    "classes": 7,
}
"""A trunk of few channels whose tokens are as many as the real trunk's: 6 x 6 at 192 pixels."""
SMALL_TEXT: Final[dict[str, Any]] = {**tower.SETTINGS, "layers": 1}
SMALL: Final[dict[str, Any]] = {
    **hybrid.CONFIG,
    "vision_cfg": {**hybrid.CONFIG["vision_cfg"], "layers": 2},
    "trunk_cfg": SMALL_TRUNK,
    "text_cfg": SMALL_TEXT,
}
IMAGENET: Final = {
    "golden retriever": RETRIEVER,
    "giraffe": GIRAFFE,
    "lobster": LOBSTER,
    "dog": DOG,
    "car": CAR,
    "primate": PRIMATE,
    "food": FOOD,
}
"""What stands for ImageNet's names."""


class _Info:
    """Stands for timm's list of ImageNet's synsets."""

    def __init__(self, _: str) -> None:
        pass

    def label_names(self) -> list[str]:
        return [f"n{offset:08d}" for offset in IMAGENET.values()]


class FakeSentences:
    """Stands for MiniLM: a random unit vector for each text, always the same."""

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        rows = [np.random.default_rng(zlib.crc32(one.encode())).normal(size=384) for one in texts]
        return torch.nn.functional.normalize(torch.tensor(np.array(rows)).float(), dim=-1)


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Replace the pretrained networks, ImageNet's names and the model's shape by small ones."""
    patch.setattr(teachers, "trunk", lambda width: trunk(width).requires_grad_())
    patch.setattr(teachers, "Sentences", FakeSentences)
    patch.setattr(concepts, "ImageNetInfo", _Info)
    patch.setattr(open_clip, "IMAGENET_CLASSNAMES", list(IMAGENET))
    patch.setattr(tower, "SETTINGS", SMALL_TEXT)
    patch.setattr(hybrid, "CONFIG", SMALL)


def write_wordnet(folder: Path) -> Path:
    """Write data.noun, index.noun and noun.exc in the formats of wndb(5WN)."""
    folder.mkdir(parents=True, exist_ok=True)
    data = ["  1 This line stands for the licence."]
    for offset, lexfile, lemmas, up in SYNSETS:
        words = " ".join(f"{lemma} 0" for lemma in lemmas)
        pointers = "000" if up is None else f"001 @ {up:08d} n 0000"
        gloss = f'what {lemmas[0]} means; "an example"'
        data.append(f"{offset:08d} {lexfile:02d} n {len(lemmas):02x} {words} {pointers} | {gloss}")
    index = ["  1 This line stands for the licence."]
    for lemma, senses in SENSES.items():
        offsets = " ".join(f"{s:08d}" for s in senses)
        index.append(f"{lemma} n {len(senses)} 1 @ {len(senses)} 1 {offsets}  ")
    (folder / "data.noun").write_text("\n".join(data) + "\n")
    (folder / "index.noun").write_text("\n".join(index) + "\n")
    (folder / "noun.exc").write_text("men man\n")
    return folder


def photo(seed: int = 0, size: tuple[int, int] = (70, 90)) -> Picture:
    """Return a smooth image [height, width, 3] with a few edges."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    image = np.array(coarse.resize(size[::-1], Image.Resampling.BICUBIC))
    image[size[0] // 3 : size[0] // 2, size[1] // 4 : size[1] // 2] = rng.integers(0, 256, 3)
    return image


STROKES: Final = [[[0, 100, 100, 0, 0], [0, 0, 80, 80, 0]], [[20, 60], [30, 50]]]
BODY: Final = '<path fill="#d33" d="M2 2h12v12H2z"/>'


def write_pictures(folder: Path) -> Path:
    """Write photos, drawings and icons where the stages look for them."""
    (folder / "coco/some").mkdir(parents=True)
    for number in range(2):
        Image.fromarray(photo(number)).save(folder / f"coco/some/{number}.jpg")
    (folder / "quick").mkdir()
    line = json.dumps({"word": "dog", "drawing": STROKES})
    (folder / "quick/dog.ndjson").write_text(f"{line}\n{line}\n\n")
    (folder / "icons/made").mkdir(parents=True)
    icons = {name: {"body": BODY} for name in ("car", "dog-face", "nonsense", "man-light-skin")}
    given = {"prefix": "made", "height": 16, "width": 16, "icons": icons}
    (folder / "icons/made/icons.json").write_text(json.dumps(given))
    return folder


def trunk(width: int, seed: int = 0) -> Trunk:
    """Return a trunk of few channels; its weights before `project` hang on the seed alone."""
    torch.manual_seed(seed)
    made = Trunk(TrunkSettings.read(SMALL_TRUNK), width)
    chance = torch.Generator().manual_seed(seed + 1)
    biases = [one for name, one in made.named_parameters() if name.endswith("bias")]
    torch.nn.init.normal_(made.classifier.weight, std=0.03, generator=chance)
    for parameter in sorted(biases, key=lambda one: one is made.project.bias):
        torch.nn.init.normal_(parameter, std=0.3, generator=chance)
    torch.nn.init.normal_(made.names, std=0.3, generator=chance)
    return made.eval().requires_grad_(False)
