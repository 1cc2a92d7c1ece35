"""Prompts as files for other programs: what is read back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import save_file

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.errors import ModelError, StateError
from fednode.learn import export
from fednode.learn.export import affine, read_arrays, write_arrays
from fednode.settings.read import Settings, chosen_of
from fednode.storage import disk
from tests.unit.storage.failing import FailingDisk


@pytest.mark.parametrize("name", ["fedclip", "fedmaple"])
def test_prompts_that_change_images_are_no_matrix(name: str, mini: FrozenClip) -> None:
    config = chosen_of({"name": name}).config
    module = registry.prompt_module(name)(mini, Settings().tuning, config)
    with pytest.raises(ModelError, match="more than a matrix"):
        affine(module, module.initial(1), ("lemon", "sea"))


PROMPTS = Tensors({"context": [[1.0, 2.0], [3.0, 4.0]]})


@pytest.mark.parametrize(
    "prompts",
    [Tensors({**PROMPTS, "scale": [0.1]}), Tensors({"rows": [[1.0], [2.0]]}, ("gray wolf", "été"))],
)
def test_arrays_come_back_bit_for_bit_with_their_facts(tmp_path: Path, prompts: Tensors) -> None:
    write_arrays(prompts, {"policy": "local"}, tmp_path / "p.safetensors")
    found, facts = read_arrays(tmp_path / "p.safetensors")
    assert (found, facts["policy"]) == (prompts, "local")


def test_a_header_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.safetensors"
    head = b'{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}'
    monkeypatch.setattr(export, "safe_open", None)
    for length in (export.HEADER_MAX + 1, 2**62):
        path.write_bytes(length.to_bytes(8, "little") + head)
        with pytest.raises(ModelError, match="cannot be read as safetensors") as refusal:
            read_arrays(path)
        assert "its header has" in str(refusal.value.__cause__)


def test_a_file_that_fednode_did_not_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"no safetensors")
    with pytest.raises(ModelError, match="junk cannot be read as safetensors"):
        read_arrays(tmp_path / "junk")
    save_file({"context": PROMPTS["context"]}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="holds no prompts that `fednode export` wrote"):
        read_arrays(tmp_path / "other.safetensors")
    write_arrays(Tensors({"context": [float("nan")]}), {}, tmp_path / "nan.safetensors")
    with pytest.raises(ModelError, match="or no numbers"):
        read_arrays(tmp_path / "nan.safetensors")


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        StateError, match=r"none/p\.safetensors cannot be written: .* choose another place for TO"
    ):
        write_arrays(PROMPTS, {}, tmp_path / "none" / "p.safetensors")
    with pytest.raises(StateError, match="is no file; choose another place for TO"):
        write_arrays(PROMPTS, {}, tmp_path)


def test_a_full_disk_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.safetensors"
    write_arrays(PROMPTS, {}, path)
    monkeypatch.setattr(disk, "Disk", lambda: FailingDisk(1, "full"))
    with pytest.raises(StateError, match="cannot be written: the disk is full"):
        write_arrays(Tensors({"context": [1.0]}), {}, path)
    assert read_arrays(path)[0] == PROMPTS
