"""Errors of the system that pass: they are named, and are no verdict on a file or a directory."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from fednode.clip import mini
from fednode.clip.config import CONFIG, SIZES, read_config, read_sizes
from fednode.clip.load import read_checkpoint
from fednode.clip.settings import ASSETS
from fednode.core.types import Tensors
from fednode.errors import FednodeError
from fednode.learn.export import read_arrays, write_arrays
from fednode.learn.privacy import ACCOUNT, read_account, write_account
from fednode.storage.disk import because
from fednode.storage.store import Store, newest
from tests.unit.clip import folders
from tests.unit.storage.stored import snapshot

PASSING: Final = (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE)
VERDICTS: Final = (
    "damaged",
    "is no ",
    "holds no",
    "fetch",
    "delete",
    "backup",
    "another directory",
)
WEIGHTS: Final = "open_clip_model.safetensors"


@dataclass(frozen=True)
class Case:
    """A folder that `write` makes, the file in it that cannot be read, and who reads it."""

    write: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]


def rounds(folder: Path) -> None:
    store = Store(folder)
    for number in (1, 2):
        store.commit(snapshot(number))
    store.close()


def round_at_start(folder: Path) -> int:
    store = Store(folder)
    try:
        held = store.latest()
        return -1 if held is None else held.policy.round
    finally:
        store.close()


def model(folder: Path) -> None:
    folders.biomedical(folder, "safetensors")


def weights(folder: Path) -> None:
    torch.save({"x": torch.zeros(2)}, folder / "x.pt")


CASES: Final = {
    "checkpoint at a start": Case(rounds, "000002.safetensors", round_at_start),
    "checkpoint": Case(rounds, "000002.safetensors", lambda at: newest(at)[0].snapshot),
    "history": Case(rounds, "history.jsonl", round_at_start),
    "account": Case(lambda at: write_account(at, {(1.0, 1.0): 3}), ACCOUNT, read_account),
    "export": Case(
        lambda at: write_arrays(Tensors({"context": np.ones((2, 3))}), {}, at / "x.safetensors"),
        "x.safetensors",
        lambda at: read_arrays(at / "x.safetensors")[0],
    ),
    "configuration": Case(model, CONFIG, lambda at: read_config(at, "m")),
    "sizes": Case(model, SIZES, read_sizes),
    "weights": Case(model, WEIGHTS, lambda at: sorted(read_checkpoint(at / WEIGHTS)[0])),
    "weights of torch": Case(weights, "x.pt", lambda at: sorted(read_checkpoint(at / "x.pt")[0])),
    "embedded model": Case(
        lambda at: shutil.copytree(ASSETS, at, dirs_exist_ok=True),
        "model.safetensors",
        lambda at: mini.expand(at)[0].visual.preprocess_cfg,
    ),
}


@pytest.mark.parametrize("code", PASSING, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", CASES)
def test_an_error_of_the_system_is_named_and_no_verdict(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, true_open = CASES[name], io.open
    case.write(tmp_path)
    sound = case.read(tmp_path)

    def failing(path: Any, *rest: Any, **options: Any) -> Any:
        if Path(str(path)).name == case.file:
            raise OSError(code, os.strerror(code), str(path))
        return true_open(path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", failing)
        patch.setattr("builtins.open", failing)
        with pytest.raises(FednodeError) as fault:
            case.read(tmp_path)
    sentence = str(fault.value)
    assert any(reason in sentence for reason in (os.strerror(code), because(OSError(code, ""))))
    assert not [verdict for verdict in VERDICTS if verdict in sentence], sentence
    assert case.read(tmp_path) == sound
