"""The hand-written prompt of a model's authors, by what its configuration says."""

from __future__ import annotations

import open_clip
import pytest

from fednode.clip.load import TEMPLATES, template_of
from fednode.clip.settings import PLAIN
from fednode.learn.settings import TuningSettings


@pytest.mark.parametrize("name", ["BiomedBERT", "PubMedBERT"])
def test_biomedclip_is_known_by_its_text_tower(name: str) -> None:
    """Both names that its configuration had on the hub."""
    text = {"hf_model_name": f"microsoft/BiomedNLP-{name}-base-uncased-abstract"}
    assert template_of(text) == "this is a photo of {}"


def test_open_clip_s_own_architectures_have_clip_s_sentence() -> None:
    names = open_clip.list_models()
    texts = [open_clip.get_model_config(name)["text_cfg"] for name in names]
    assert {template_of(text) for text in texts} == {PLAIN}
    assert template_of({"context_length": 77}) == PLAIN


@pytest.mark.parametrize("template", [PLAIN, *TEMPLATES.values()])
def test_each_sentence_fits_the_setting(template: str) -> None:
    assert TuningSettings(template=template).worded("another {}").template == template
    assert TuningSettings().worded(template).template == template
