"""Examine image files before splits are drawn: which are unreadable, constant, or copies.

A file is examined by decoding it, because nothing else finds a truncated file: about 0.1 ms for an
image of 128 pixels, some 50 ms for a photograph of 12 megapixels. A cache keeps the results by
path, size and modification time, so all nodes of a machine together decode each file once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, Protocol

from PIL import UnidentifiedImageError

from fednode import units
from fednode.data.base import Problem, ProgressFn, Split, no_progress, note, warning
from fednode.data.decode import decode, decoder_key
from fednode.data.files import opened, require_regular, system_fault, why
from fednode.data.pixels import Unusable, Window

_WORKERS = 4
_SIDE: Final = 32
"""A JPEG is decoded at a reduced size, but not below this."""
_AT_ONCE: Final = 256
"""Verdicts that are put into the cache together; an interruption loses no more."""
SKIPPED_NAMED: Final = 20
"""Most skipped files of a kind that are named by default."""
UNREAD: Final = "cannot be read"
"""The kind of reason that may pass while the file stays as it is."""
_WORK: Final = "examining images"
_REASON_CHARACTERS_MAX = 160


class Cache(Protocol):
    """Where results of examinations are kept, by key (node/fednode/learn/cache.py)."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached values of the keys."""
        ...

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Insert or replace values."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an examination of a file found.

    fault: why the file cannot be used, None if it can. constant: all pixels have one colour.
    frames: in the file; of a DICOM file with several, the middle one is used. digest: of the file's
    bytes. patient: digest of the DICOM tag PatientID, "" without one; the tag itself is not kept.
    """

    fault: str | None = None
    constant: bool = False
    frames: int = 1
    digest: str = ""
    patient: str = ""


def examine(
    paths: Iterable[Path],
    window: Window = None,
    cache: Cache | None = None,
    progress: ProgressFn = no_progress,
) -> dict[Path, Verdict]:
    """Return a verdict on each file.

    cache: keeps verdicts until a file changes; None decodes every file. progress: how many files
    have a verdict.
    """
    keys: dict[Path, bytes] = {}
    decoder = decoder_key(window)
    verdicts: dict[Path, Verdict] = {}
    for path in paths:
        try:
            keys[path] = _key(path, path.stat(), decoder)
        except OSError as error:
            verdicts[path] = Verdict(f"{UNREAD}: {why(error)}")
    kept = {} if cache is None else cache.get(list(keys.values()))
    known = {path: _unpacked(kept.get(key, b"")) for path, key in keys.items()}
    verdicts |= {path: verdict for path, verdict in known.items() if verdict is not None}
    unknown = [path for path in keys if path not in verdicts]
    every = len(verdicts) + len(unknown)
    lasting: dict[bytes, bytes] = {}
    # Closed by Ctrl-C, too: then no other file is decoded.
    with contextlib.closing(_look_at_all(unknown, window)) as looks:
        for path, (verdict, keep) in zip(unknown, looks, strict=True):
            verdicts[path] = verdict
            progress(_WORK, len(verdicts), every)
            if keep:  # what the system refuses now, or software that is missing, may come later
                lasting[keys[path]] = json.dumps(astuple(verdict)).encode()
            if cache is not None and (len(lasting) == _AT_ONCE or len(verdicts) == every):
                cache.put(lasting)
                lasting = {}
    return verdicts


def _key(path: Path, status: os.stat_result, decoder: str) -> bytes:
    """Return the key of a verdict; it changes with the file and with the version of the decoder."""
    parts = (decoder, str(path.absolute()), status.st_size, status.st_mtime_ns)
    return hashlib.blake2b(repr(parts).encode(), person=b"examined", digest_size=32).digest()


def _unpacked(value: bytes) -> Verdict | None:
    """Return the verdict in a cached value; None if there is none."""
    try:
        fault, constant, frames, digest, patient = json.loads(value)
        if fault is not None and not isinstance(fault, str):
            return None
        return Verdict(fault, bool(constant), int(frames), str(digest), str(patient))
    except (ValueError, TypeError):
        return None


def _look_at_all(paths: list[Path], window: Window) -> Generator[tuple[Verdict, bool], None, None]:
    # Decoders warn about unusual metadata and large images; here only errors count.
    with warnings.catch_warnings(), ThreadPoolExecutor(_WORKERS, "examine") as pool:
        warnings.simplefilter("ignore")
        yield from pool.map(_look_at, paths, [window] * len(paths))


def _look_at(path: Path, window: Window) -> tuple[Verdict, bool]:
    """Return the verdict on a file, and whether it stays true while the file does not change."""
    try:
        status = path.stat()
        require_regular(status)
        if status.st_size == 0:
            return Verdict("the file is empty"), True
        for side in (_SIDE, None):
            with decode(path, window, side) as decoded:
                constant = all(low == high for low, high in decoded.image.getextrema())  # type: ignore[misc]
            if not constant or decoded.whole:  # a reduced image may hide a fine pattern
                break
        patient = _short(decoded.patient.encode()).hexdigest() if decoded.patient else ""
        return Verdict(None, constant, decoded.frames, _digest(path), patient), True
    except Unusable as error:
        return Verdict(str(error)), False
    except Exception as error:
        # Decoders raise errors of any type on damaged bytes; the file is unusable in any case.
        if passing := _passing(error, path):
            return Verdict(passing), False
        if isinstance(error, UnidentifiedImageError):
            return Verdict("no image of a known format"), True
        text = " ".join(str(error).split()) or type(error).__name__
        return Verdict(f"damaged: {text[:_REASON_CHARACTERS_MAX]}"), True


def _passing(error: BaseException, path: Path) -> str:
    """Return what the system, not the file, is to blame for; "" if the file is damaged.

    The whole file is read once more, because a decoder may hide that it could not read.
    """
    fault = system_fault(error)
    if isinstance(fault, MemoryError):
        return "too large to decode in memory"
    if fault is not None:
        return f"{UNREAD}: {why(fault)}"
    try:
        _digest(path)
    except OSError as found:
        return f"{UNREAD}: {why(found)}"
    except Unusable as found:
        return str(found)
    return ""


def _digest(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, _short).hexdigest()


def _short(content: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=16)


def copies_among(
    train: Split, test: Split, validation: Split, verdicts: Mapping[Path, Verdict]
) -> Iterator[Problem]:
    """Yield a warning on test images that train, too, and a note that counts all copies."""
    known = {verdicts[image.path].digest for image in train.images}
    copies = sum(verdicts[image.path].digest in known for image in test.images)
    if copies:
        yield warning(
            f"{copies:,} of {len(test.images):,} test images are exact copies of training images, "
            "so the test accuracy is too high: remove the copies from the training images or from "
            "the test images."
        )
    classes = defaultdict[str, list[str]](list)
    for split in (train, validation, test):
        for image in split.images:
            classes[verdicts[image.path].digest].append(split.classes[image.label])
    repeated = sum(len(names) - 1 for names in classes.values())
    several = sum(len(set(names)) > 1 for names in classes.values())
    if repeated:
        yield note(
            f"Images that are exact copies of others: {repeated:,}. Images that are in several "
            f"classes: {several:,}."
        )


def skip_report(skipped: Sequence[tuple[Path, str]], most: int = SKIPPED_NAMED) -> list[str]:
    """Return a sentence for each kind of skipped files, the most frequent kind first.

    most: files of a kind that are named; more are counted.
    """
    files: dict[str, list[str]] = {}
    for path, reason in skipped:
        kind = reason.partition(":")[0].partition(" (")[0].partition(";")[0]
        files.setdefault(kind, []).append(_shown(path, reason.removeprefix(kind)))
    return [
        f"Skipped {len(shown)} file{'s' * (len(shown) > 1)} ({kind}): {units.listed(shown, most)}."
        for kind, shown in sorted(files.items(), key=lambda pair: -len(pair[1]))
    ]


def _shown(path: Path, detail: str) -> str:
    """Return a path, and in brackets the details of its reason, if it has any."""
    detail = detail.lstrip(" :;")
    if detail.startswith("(") and detail.endswith(")"):
        detail = detail[1:-1]
    return f"'{path}' ({detail})" if detail and not detail.startswith(".") else f"'{path}'"
