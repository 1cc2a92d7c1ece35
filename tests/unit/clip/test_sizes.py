"""The table of sizes: open_clip builds all its text towers without asking the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from fednode.clip import sizes
from fednode.errors import ModelError
from tests.unit.clip import folders

HUB = {
    name: config["text_cfg"]
    for name in open_clip.list_models()
    if "hf_model_name" in (config := open_clip.get_model_config(name))["text_cfg"]
}
PARAMETERS = {
    "roberta-base": 124.6,
    "xlm-roberta-base": 278.0,
    "xlm-roberta-large": 559.9,
    "google/mt5-base": 277.0,
    "google/mt5-xl": 1670.0,
    "facebook/nllb-200-distilled-600M": 413.0,
    "facebook/nllb-200-distilled-1.3B": 766.0,
    "bert-base-uncased": 109.5,
}
"""Millions of parameters of the encoders (BERT with its pooler), counted from the published
sizes: embeddings, and layers of attention and perceptron."""


def test_the_table_knows_every_text_tower_of_open_clip() -> None:
    assert len(HUB) == 10
    assert {text["hf_model_name"] for text in HUB.values()} <= set(sizes.TABLE)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_tower_has_its_published_number_of_parameters(name: str) -> None:
    with sizes.given({"hf_model_name": name}), torch.device("meta"):
        kind: Any = __import__("open_clip.hf_model", fromlist=["x"]).HFTextEncoder
        pooler = "cls_pooler" if name.startswith("bert") else "mean_pooler"
        tower = kind(name, 64, pooler_type=pooler, proj_type="linear", pretrained=False)
    count = sum(one.numel() for one in tower.transformer.parameters()) / 1e6
    assert count == pytest.approx(PARAMETERS[name], rel=0.01)


def test_biomedclip_s_sizes_fill_its_published_file(tmp_path: Path) -> None:
    """open_clip_pytorch_model.bin on the hub has 783,705,670 bytes, four for each weight."""
    text = folders.REAL["model_cfg"]["text_cfg"]
    (tmp_path / "open_clip_config.json").write_text(json.dumps(folders.REAL))
    with sizes.given(text), torch.device("meta"):
        model: Any = open_clip.create_model(
            f"local-dir:{tmp_path}", load_weights=False, pretrained_text=False, device="meta"
        )
    count = sum(one.numel() for one in model.parameters())
    assert 4 * count == pytest.approx(783_705_670, rel=2e-4)


def test_an_unknown_tower_says_where_its_sizes_go() -> None:
    wanted = r"the sizes of the text tower somebody/bert are unknown.*local-dir:FOLDER"
    with pytest.raises(ModelError, match=wanted), sizes.given({"hf_model_name": "somebody/bert"}):
        pass


def test_open_clip_asks_as_before_behind_the_block() -> None:
    asked: Any = __import__("open_clip.hf_model", fromlist=["x"])
    before = asked.AutoConfig
    with sizes.given({"hf_model_name": "roberta-base"}):
        assert asked.AutoConfig.from_pretrained("x").model_type == "roberta"
    assert asked.AutoConfig is before
