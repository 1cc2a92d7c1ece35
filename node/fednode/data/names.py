"""Names of classes: how they stand in a prompt, and which are one and the same for a model."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from fednode.core.foreign import JOINERS, printable
from fednode.errors import DataError
from fednode.units import listed

BYTES_MAX: Final = 256
"""Bytes of a name that a message takes."""
CLASSES_NAMED: Final = 50
"""Most class names that a sentence lists."""
_QUOTES: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032`", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
    }
)
Part = Literal["train", "val", "test"]
PARTS: Final[Mapping[str, Part]] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "crossval", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The folders of a published split, by their names in small letters."""
_LAYOUT: Final = re.compile(
    "annotations?|batch|data|dataset|eval|evaluation|fold|folder|holdout|images?|imgs?|label|labels"
    f"|(un)?labell?ed|masks?|part|raw|set|split|subset|{'|'.join(PARTS)}"
)
"""Words that say what a folder is for, not what its images show."""
_PART: Final = re.compile(r"(^|[\W_])(images?|imgs?|part|fold|split|batch|shard)[\W_]*\d+$")
TABLES: Final = (".csv", ".tsv", ".xls", ".xlsx", ".ods", ".parquet")


def shown(name: str) -> str:
    """Return a name as it stands in a prompt and in messages.

    It is in Unicode's composed form; every kind of blank is a space, and marks without a width are
    left out, but for the joiners that spelling takes.
    """
    text = unicodedata.normalize("NFC", name).replace("_", " ")
    kept = (
        " " if letter.isspace() or kind == "Cc" else letter
        for letter, kind in ((letter, unicodedata.category(letter)) for letter in text)
        if kind != "Cf" or letter in JOINERS
    )
    return " ".join("".join(kept).split()).strip(JOINERS)


def unsendable(name: str) -> str:
    """Return why a shown name cannot be sent to peers, as half a sentence; "" if it can."""
    if not name:
        return "has a name without a letter"
    if len(name.encode()) > BYTES_MAX:
        return f"has a name of {len(name.encode())} bytes, and {BYTES_MAX} is the limit"
    odd = next((letter for letter in name if not printable(letter)), "")
    return f"has the character U+{ord(odd):04X}, which cannot be sent to peers" if odd else ""


def visible(classes: Sequence[str], told: bool = True) -> str:
    """Return a sentence on the names that members of the mesh see. told: data.tell_classes."""
    if not told:
        return "Members of the mesh do not see the class names (data.tell_classes is false)."
    text = "Members of the mesh see these class names, unless data.tell_classes is false"
    return f"{text}: {listed(classes, CLASSES_NAMED)}."


def same(name: str) -> str:
    """Return a form that is equal for names which a model's tokenizer does not tell apart."""
    text = shown(unicodedata.normalize("NFKC", html.unescape(html.unescape(name))))
    for joiner in JOINERS:
        text = text.replace(joiner, "")
    return unicodedata.normalize("NFKC", text.casefold()).translate(_QUOTES)


def refuse_twins(where: str, names: Iterable[tuple[str, str]]) -> None:
    """Raise DataError if two names are one and the same for a model.

    where: begins the sentence. names: as they are written, and as they stand in a prompt.
    """
    seen: dict[str, str] = {}
    for written, text in names:
        twin = seen.setdefault(same(text), written)
        if twin != written:
            raise DataError(
                f"{where} has '{twin}' and '{written}' for the class '{text}': a model takes both "
                "names for one; merge the images, or rename one of them."
            )


def for_layout(name: str) -> bool:
    """Tell whether a folder's name says what it is for: train, test_images, images_part_1."""
    words = [word for word in re.split(r"[\W\d_]+", name.lower()) if word]
    return bool(words) and (all(map(_LAYOUT.fullmatch, words)) or bool(_PART.search(name.lower())))
