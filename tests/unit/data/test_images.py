"""Examining image files: what is readable, why not, and what is remembered."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from fednode.data import images
from fednode.data.base import DataSettings
from fednode.data.images import Verdict, examine, skip_report
from fednode.data.load import load
from fednode.data.pixels import Decoded, Unusable, Window
from fednode.errors import DataError
from fednode.learn.cache import FeatureCache
from tests.unit.data.conftest import MakeFolder


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> Path:
    Image.new(mode, size, 1 if mode in {"L", "P", "I;16"} else None).save(path)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> FeatureCache:
    return FeatureCache(tmp_path / "cache", 10_000_000)


def verdict(path: Path) -> str | None:
    return examine([path])[path].fault


def huge_png() -> bytes:
    """Return the header of an image of 12,000 x 12,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 12000, 12000, 8, 2, 0, 0, 0)
    chunks = (header, b"IDAT")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks
    )


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("one.jpg", lambda whole: whole[:-200], "damaged: "),
        ("one.jpg", lambda _: b"not a picture", "no image of a known format"),
        ("one.jpg", lambda _: b"", "the file is empty"),
        ("one.png", lambda whole: whole[:50] + b"\xff" * 99, "damaged: "),
        ("one.png", lambda _: huge_png(), "144 megapixels; the limit is 89"),
        ("gone.png", None, "cannot be read: No such file or directory"),
        ("loop.png", None, "cannot be read: "),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None, said: str
) -> None:
    path = tmp_path / name
    if change is not None:
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(change(path.read_bytes()))
    elif name == "loop.png":
        path.symlink_to(path)
    assert (verdict(path) or "").startswith(said)


PASSING = ("EACCES", "EPERM", "EMFILE", "ENFILE", "EIO", "ESTALE", "ETIMEDOUT", "ENOMEM", "EAGAIN")


@pytest.mark.parametrize("where", ["opened", "decoded", "hidden"])
@pytest.mark.parametrize("name", [*PASSING, "memory", "software"])
def test_what_the_system_refuses_for_a_moment_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: FeatureCache, name: str, where: str
) -> None:
    """hidden: the decoder raises an error of its own, as if the file were damaged."""
    path = save(tmp_path / "one.png")
    number = getattr(errno, name, 0)
    error: Exception = OSError(number, os.strerror(number)) if number else MemoryError()
    error = Unusable("a DICOM file, which takes an extra") if name == "software" else error

    def fail(*_: object, **__: object) -> None:
        if where != "hidden":
            raise error
        try:
            raise error
        except (OSError, MemoryError):
            raise ValueError("bad bytes") from None

    with monkeypatch.context() as patched:
        patched.setattr(images, "opened" if where == "opened" else "decode", fail)
        fault = examine([path], None, cache)[path].fault or ""
    assert not fault.startswith("damaged")
    assert ("too many files are open" in fault) == (name in {"EMFILE", "ENFILE"})
    assert examine([path], None, cache)[path].fault is None


def test_no_free_descriptor_is_one_sentence_and_no_damage(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch, cache: FeatureCache
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    settings = DataSettings(path=str(make_folder({"ant": 5, "bee": 5})))
    with monkeypatch.context() as patched:
        patched.setattr(images, "decode", fail)
        with pytest.raises(DataError, match=r"10 images, .* too many files are open: raise"):
            load(settings, cache)
    assert len(load(settings, cache).train.images) > 2


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "too large to decode in memory"),
        (IndexError(), "damaged: IndexError"),
        (SyntaxError("x" * 500), "damaged: " + "x" * 160),
    ],
)
def test_whatever_a_decoder_raises_becomes_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, sentence: str
) -> None:
    path = save(tmp_path / "one.png")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(images, "decode", fail)
    assert verdict(path) == sentence


def test_verdicts_are_kept_until_a_file_changes(
    tmp_path: Path, cache: FeatureCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = save(tmp_path / "good.png"), tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    first = examine([good, bad], None, cache)
    decoded: list[Path] = []

    @contextmanager
    def noted(path: Path, window: Window, side: int | None) -> Iterator[Decoded]:
        decoded.append(path)
        yield Decoded(Image.new("RGB", (2, 2)), frames=3, patient="p-1")

    monkeypatch.setattr(images, "decode", noted)
    other_node = FeatureCache(tmp_path / "cache", 10_000_000)
    assert examine([good, bad], None, other_node) == first
    assert decoded == []
    os.utime(bad, ns=(1, 1))
    digest = hashlib.blake2b(b"no image", digest_size=16).hexdigest()
    patient = hashlib.blake2b(b"p-1", digest_size=16).hexdigest()
    wanted = Verdict(None, True, 3, digest, patient)
    assert examine([good, bad], None, cache)[bad] == wanted
    assert decoded == [bad]
    assert examine([good, bad], None, cache)[bad] == wanted
    assert decoded == [bad]
    examine([good], (0.0, 1.0), cache)
    assert decoded == [bad, good], "a verdict is true of one window"


def test_images_of_one_colour_are_found_and_fine_patterns_are_not(tmp_path: Path) -> None:
    flat, pattern = tmp_path / "flat.jpg", tmp_path / "pattern.jpg"
    Image.new("RGB", (64, 64), (200, 10, 10)).save(flat)
    stripes = Image.new("L", (512, 512))
    stripes.putdata([255 * (at // 4 % 2) for _ in range(512) for at in range(512)])
    stripes.save(pattern, quality=95)
    found = examine([flat, pattern])
    assert {path: one.constant for path, one in found.items()} == {flat: True, pattern: False}
    assert len({one.digest for one in found.values()}) == 2


class Damaged:
    """A cache that has the same bytes for every key."""

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.kept: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict.fromkeys(keys, self.value)

    def put(self, items: Mapping[bytes, bytes]) -> None:
        self.kept.update(items)


@pytest.mark.parametrize("value", [b"", b"[]", b"[1, 2]", b'{"a": 1}', b"[1, false, 1]", b"\xff"])
def test_a_value_that_is_no_verdict_is_replaced(tmp_path: Path, value: bytes) -> None:
    path, cache = save(tmp_path / "one.png"), Damaged(value)
    found = examine([path], None, cache)
    assert found == examine([path])
    cache.value = next(iter(cache.kept.values()))
    cache.kept.clear()
    assert examine([path], None, cache) == found
    assert cache.kept == {}


def test_many_skipped_files_are_counted_and_some_named() -> None:
    skipped = [(Path(f"{at}.png"), f"damaged: fault {at}") for at in range(25)]
    skipped.append((Path("a.txt"), "not an image by its suffix (.bmp, .gif)"))
    first, second = skip_report(skipped)
    assert first.startswith("Skipped 25 files (damaged): '0.png' (fault 0), '1.png' (fault 1)")
    assert first.endswith("'19.png' (fault 19) and 5 more.")
    assert second == "Skipped 1 file (not an image by its suffix): 'a.txt'."
    (cut,) = skip_report([(Path("b.jpg"), "damaged: truncated (54 bytes not processed)")])
    assert cut == "Skipped 1 file (damaged): 'b.jpg' (truncated (54 bytes not processed))."
