"""The table of docs/methods.md counts what a node sends with the model that ships."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fednode import registry
from fednode.clip.model import FrozenClip
from fednode.core.types import Tensors
from fednode.learn.settings import TuningSettings

PAGE = Path(__file__).resolve().parents[3] / "docs/methods.md"
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
COUNTS = dict(re.findall(r"^\| `(\w+)` .*?\| ([\d,]+)(?: at most)? \|", PAGE.read_text(), re.M))


@pytest.mark.parametrize("name", registry.names())
def test_a_contribution_has_as_many_numbers_as_the_page_says(mini: FrozenClip, name: str) -> None:
    kind = registry.policy(name)
    takes_domains = "domains" in kind.config_type.__dataclass_fields__
    config = kind.config_type(**({"domains": DOMAINS} if takes_domains else {}))
    tuning: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in kind.tuning.items()
    }
    made = registry.prompt_module(name)(mini, TuningSettings(**tuning), config)
    sent = made.initial(0)
    if name == "feddpt":
        mine = config.trained(DOMAINS[0])
        sent = Tensors({key: one for key, one in sent.items() if key in mine})
    elif name == "gda":  # of one class
        sent = Tensors({"rows": np.zeros((1, sent["rows"].shape[1]))})
    elif name == "local":
        sent = Tensors()
    numbers = sum(math.prod(shape) for shape in sent.shapes.values())
    assert numbers == int(COUNTS[name].replace(",", ""))
