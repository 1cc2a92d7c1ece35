"""Sizes of text towers: BiomedCLIP's are known, others come from a folder or from the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from fednode.clip.load import BIOMEDICAL, offline, text_sizes
from fednode.errors import ModelError
from tests.unit.clip import folders


def test_biomedclip_s_sizes_fill_its_published_file(tmp_path: Path) -> None:
    """open_clip_pytorch_model.bin on the hub has 783,705,670 bytes, four for each weight."""
    text = folders.REAL["model_cfg"]["text_cfg"]
    (tmp_path / "open_clip_config.json").write_text(json.dumps(folders.REAL))
    with text_sizes(text), torch.device("meta"):
        model: Any = open_clip.create_model(
            f"local-dir:{tmp_path}", load_weights=False, pretrained_text=False, device="meta"
        )
    count = sum(one.numel() for one in model.parameters())
    assert 4 * count == pytest.approx(783_705_670, rel=2e-4)


def asked() -> Any:
    return __import__("open_clip.hf_model", fromlist=["x"])


def test_an_unknown_tower_says_where_its_sizes_go() -> None:
    wanted = r"the sizes of the text tower somebody/bert are unknown.*hub.*local-dir:FOLDER"
    unknown = text_sizes({"hf_model_name": "somebody/bert"})
    with offline(True), unknown, pytest.raises(ModelError, match=wanted):
        asked().AutoConfig.from_pretrained("somebody/bert")


def test_open_clip_asks_as_before_behind_the_block() -> None:
    before = asked().AutoConfig
    with text_sizes({"hf_model_name": BIOMEDICAL[0]}):
        assert asked().AutoConfig.from_pretrained("x").model_type == "bert"
    assert asked().AutoConfig is before
