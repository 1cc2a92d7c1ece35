"""A WordNet of a dozen nouns and a few coloured images, enough for every stage of pretraining."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

ENTITY, ANIMAL, DOG, RETRIEVER, GIRAFFE = 1740, 15388, 2084071, 2099601, 2439033
LOBSTER_DISH, LOBSTER, FOOD, CAR, MAN = 7792725, 1982650, 21265, 2958343, 10287213

# offset, lexicographer file, lemmas, hypernym
SYNSETS = (
    (ENTITY, 3, ("entity",), None),
    (ANIMAL, 3, ("animal", "beast"), ENTITY),  # noun.Tops, as in WordNet
    (FOOD, 3, ("food",), ENTITY),
    (LOBSTER, 5, ("lobster",), ANIMAL),
    (DOG, 5, ("dog", "domestic_dog"), ANIMAL),
    (RETRIEVER, 5, ("golden_retriever",), DOG),
    (GIRAFFE, 5, ("giraffe",), ANIMAL),
    (CAR, 6, ("car", "auto"), ENTITY),
    (LOBSTER_DISH, 13, ("lobster",), FOOD),
    (MAN, 18, ("man", "adult_male"), ENTITY),
)
SENSES = {
    "entity": (ENTITY,),
    "animal": (ANIMAL,),
    "beast": (ANIMAL,),
    "food": (FOOD,),
    "lobster": (LOBSTER_DISH, LOBSTER),
    "dog": (DOG,),
    "domestic_dog": (DOG,),
    "golden_retriever": (RETRIEVER,),
    "giraffe": (GIRAFFE,),
    "car": (CAR,),
    "auto": (CAR,),
    "man": (MAN,),
    "adult_male": (MAN,),
}
COLOURS = {DOG: (200, 40, 40), CAR: (40, 40, 200), RETRIEVER: (40, 200, 40)}


def write_wordnet(folder: Path) -> Path:
    """Write data.noun, index.noun and noun.exc in the formats of wndb(5WN)."""
    folder.mkdir(parents=True, exist_ok=True)
    data = ["  1 This line stands for the licence."]
    for offset, lexfile, lemmas, up in SYNSETS:
        words = " ".join(f"{lemma} 0" for lemma in lemmas)
        pointers = "000" if up is None else f"001 @ {up:08d} n 0000"
        data.append(f"{offset:08d} {lexfile:02d} n {len(lemmas):02x} {words} {pointers} | a gloss")
    index = ["  1 This line stands for the licence."]
    for lemma, senses in SENSES.items():
        offsets = " ".join(f"{s:08d}" for s in senses)
        index.append(f"{lemma} n {len(senses)} 1 @ {len(senses)} 1 {offsets}  ")
    (folder / "data.noun").write_text("\n".join(data) + "\n")
    (folder / "index.noun").write_text("\n".join(index) + "\n")
    (folder / "noun.exc").write_text("men man\n")
    return folder


def write_tiny_imagenet(folder: Path, count: int = 12) -> Path:
    """Write `count` noisy images of one colour for each of three classes, and as many held out."""
    rng = np.random.default_rng(0)
    listing = []
    for offset, colour in COLOURS.items():
        wnid = f"n{offset:08d}"
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        (folder / "val/images").mkdir(parents=True, exist_ok=True)
        for number in range(count):
            noise = rng.integers(-30, 30, (64, 64, 3))
            pixels = (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(images / f"{wnid}_{number}.JPEG")
            name = f"val_{wnid}_{number}.JPEG"
            Image.fromarray(pixels).save(folder / "val/images" / name)
            listing.append(f"{name}\t{wnid}\t0\t0\t63\t63")
    (folder / "val/val_annotations.txt").write_text("\n".join(listing))
    return folder


def write_flickr8k(folder: Path) -> Path:
    """Write two images with three captions each."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for name, captions in {
        "one.jpg": ("A man and his dogs .", "Two dogs run .", "The men walk dogs ."),
        "two.jpg": ("A car .", "A red car is parked .", "An auto ."),
    }.items():
        Image.new("RGB", (90, 60), (9, 99, 9)).save(folder / "images" / name)
        lines += [f"{name}#{i}\t{text}" for i, text in enumerate(captions)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines))
    return folder
