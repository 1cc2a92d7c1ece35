"""FedMaPLe's settings: the paper's depth, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.policies.fedmaple import FedMaPLeConfig


def test_the_paper_s_depth_and_equal_nodes_are_the_defaults() -> None:
    assert (FedMaPLeConfig().depth, FedMaPLeConfig().weights) == (9, "equal")


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"depth": 0}, "policy.depth is 0; it must be at least 1"),
        ({"participants": -1}, "policy.participants"),
    ],
)
def test_settings_out_of_range_are_a_sentence(set_: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FedMaPLeConfig(**set_)
