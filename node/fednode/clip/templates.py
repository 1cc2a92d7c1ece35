"""The hand-written prompt of a model's authors, where it is another than CLIP's.

A model is known by the name that its configuration has for its text tower. open_clip measures all
its architectures with CLIP's sentences, and CLIP's paper names "A photo of a {label}." a good
default; so PLAIN is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fednode.clip.settings import PLAIN
from fednode.clip.sizes import BIOMEDICAL

TEMPLATES: Final[Mapping[str, str]] = dict.fromkeys(BIOMEDICAL, "this is a photo of {}")
"""By text tower. BiomedCLIP (arXiv:2303.00915): the sentence in the example of its model card."""


def template_of(text: Mapping[str, Any]) -> str:
    """Return the hand-written prompt of a model's authors; text: "text_cfg" of its configuration.

    It has one {}, for the class name.
    """
    return TEMPLATES.get(str(text.get("hf_model_name", "")), PLAIN)
