"""Foreign and damaged checkpoints: one sentence of ours for each, and no warning of torch's."""

from __future__ import annotations

import gc
import struct
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from fednode.clip import model as clip
from fednode.clip.load import HEADER_MAX, read_checkpoint
from fednode.clip.settings import ModelSettings
from fednode.errors import ModelError
from tests.unit.clip import tiny

BOMB = b"\x80\x02cbuiltins\nprint\n(X\x08\x00\x00\x00code rantR."
"""A pickle of a call, which prints where it is read with code allowed."""


def nested() -> bytes:
    """Return a pickle that unfolds into 2 ** 64 lists."""
    unfold = b"(lp0\n" + b"".join(b"(lp%d\ng%d\nag%d\na" % (at + 1, at, at) for at in range(64))
    return b"\x80\x02" + unfold + b"."


def foreign(folder: Path) -> dict[str, Path]:
    """Write files that others make; return them by what they are."""
    named = ("bomb", "lists", "garbage", "zip", "empty", "torchscript", "sparse", "storage")
    found = {name: folder / f"{name}.pt" for name in named}
    found["bomb"].write_bytes(BOMB)
    found["lists"].write_bytes(nested())
    found["garbage"].write_bytes(bytes(range(1, 256)) * 9)
    with zipfile.ZipFile(found["zip"], "w") as made:
        made.writestr("readme.txt", "nothing of torch's")
    found["empty"].write_bytes(b"")
    torch.save({"w": torch.zeros(2)}, found["torchscript"])
    with zipfile.ZipFile(found["torchscript"], "a") as made:
        made.writestr("torchscript/constants.pkl", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"w": torch.eye(2).to_sparse_csr()}, found["sparse"])
        storage = torch.FloatStorage(2)  # type: ignore[no-untyped-call]
        torch.save({"w": storage}, found["storage"])
    return found


def test_a_foreign_checkpoint_gets_one_sentence_of_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    for path in foreign(tmp_path).values():
        recwarn.clear()
        with pytest.raises(ModelError) as fault:
            read_checkpoint(path)
        said = str(fault.value)
        assert said.startswith(f"{path} ")
        assert said.endswith(".")
        for theirs in ("\n", "Error", "inline_container", "torch.load", "weights_only", "GLOBAL"):
            assert theirs not in said
        assert list(recwarn) == []
    assert capfd.readouterr() == ("", "")


LONG = b"{" + b" " * HEADER_MAX + b"}"
"""A header with room for a million empty tensors."""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no checkpoint file"),
        ([torch.zeros(1)], "holds a list, not a state dict"),
        ({"epoch": 3}, "holds no tensors"),
        (b"", "or a damaged one: fetch the file again"),
        (b"\xff" * 64, "or a damaged one: fetch the file again"),
        (struct.pack("<Q", len(LONG)) + LONG, "names its tensors in 8 MiB, and no model needs mor"),
    ],
)
def test_what_is_no_state_dict_is_named(tmp_path: Path, content: Any, sentence: str) -> None:
    path = tmp_path / f"odd.{'safetensors' if isinstance(content, bytes) else 'pt'}"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ModelError, match=sentence):
        read_checkpoint(path)


def test_an_archive_that_grows_when_it_is_read_is_refused(tmp_path: Path) -> None:
    """Weights of other kinds count as missing."""
    held = {"w": torch.zeros(2), "c": torch.zeros(2, dtype=torch.complex64)}
    torch.save(held, tmp_path / "good.pt")
    assert set(read_checkpoint(tmp_path / "good.pt")[0]) == {"w"}
    path = tmp_path / "grows.pt"
    with (
        zipfile.ZipFile(tmp_path / "good.pt") as good,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bad,
    ):
        for entry in good.infolist():
            bad.writestr(entry.filename, good.read(entry) + bytes(1 << 20))
    with pytest.raises(ModelError, match="MiB when it is read, and torch compresses nothing"):
        read_checkpoint(path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_a_safetensors_file_in_float32_is_mapped_where_it_lies(tmp_path: Path, half: bool) -> None:
    """So processes that use one file have its weights in memory once."""
    path, model = tmp_path / "model.safetensors", tiny.clip(3)
    save_file((model.half() if half else model).state_dict(), path)
    settings = ModelSettings(name=tiny.register(tmp_path), pretrained=str(path), device="cpu")
    frozen = clip.load(settings)
    open_clip.factory._MODEL_CONFIGS.pop(tiny.NAME, None)
    assert frozen.fingerprint
    gc.collect()
    assert (str(path) in Path("/proc/self/maps").read_text()) is not half
