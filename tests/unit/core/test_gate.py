"""What is let in: every refusal has a code, a reason to count and a sentence; nothing is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fednode.core.gate import TAKEN, Gate
from fednode.core.members.table import Members
from fednode.core.types import Tensors
from tests.unit.core.scenes import FACTS, PROMPTS, context, message, zerodfl

NORM_MAX = 1000.0


@pytest.fixture
def gate() -> Gate:
    return Gate(replace(context(), norm_max=NORM_MAX), FACTS, Members(("b", "c")))


def test_the_remedy_for_an_unknown_sender_fits_the_mesh() -> None:
    unknown = message(sender="zoe")
    for grows, remedy in ((False, "add it to peers.yaml"), (True, "its next hello makes it")):
        gate = Gate(replace(context(), grows=grows), FACTS, Members("b"))
        assert remedy in gate.check(unknown, zerodfl())[2]


def test_a_message_of_our_mesh_is_taken(gate: Gate) -> None:
    assert gate.check(message(), zerodfl()) == TAKEN


@pytest.mark.parametrize(
    ("changed", "code", "reason", "text"),
    [
        ({"mesh": "other"}, "refused", "mesh", "mesh 'mesh', not 'other'"),
        ({"sender": "zoe"}, "refused", "sender", "'zoe' is not among the peers of 'a'"),
        ({"policy": "local"}, "refused", "configuration", "policy.name is zerodfl at 'a' and"),
        ({"fingerprint": "0"}, "refused", "configuration", "the configuration of 'b' differs"),
        ({"phase": "gradient"}, "invalid", "schema", "no phase 'gradient'"),
        ({"tensors": Tensors()}, "invalid", "schema", "carries context[2, 2]"),
        ({"tensors": Tensors({"context": [[1.0, 2.0]]})}, "invalid", "schema", "context[1, 2]"),
        ({"tensors": Tensors({"weights": np.ones((2, 2))})}, "invalid", "schema", "weights"),
        ({"phase": "done", "tensors": PROMPTS}, "invalid", "schema", "'done' carries no tensors"),
        (
            {"tensors": Tensors({"context": [[1.0, 2.0], [3.0, float("nan")]]})},
            "invalid",
            "not finite",
            "",
        ),
        ({"tensors": Tensors({"context": np.full((2, 2), 1e30)})}, "invalid", "norm", "norm is"),
    ],
)
def test_what_is_wrong_is_refused_and_named(
    gate: Gate, changed: dict[str, Any], code: str, reason: str, text: str
) -> None:
    verdict = gate.check(message(**changed), zerodfl())
    assert verdict[:2] == (code, reason)
    assert text in verdict[2]


def test_a_hello_with_other_facts_is_told_where_they_differ(gate: Gate) -> None:
    facts = {**FACTS, "tuning.context_length": "8"}
    verdict = gate.check(message("hello", fingerprint="0", facts=facts), zerodfl())
    assert verdict[:2] == ("refused", "configuration")
    assert verdict[2] == "tuning.context_length is 2 at 'a' and 8 at 'b'"


def test_the_norm_is_bounded(gate: Gate) -> None:
    length = NORM_MAX
    rows = np.zeros((2, 2))
    rows[0, 0] = length * 0.999
    assert gate.check(message(tensors=Tensors({"context": rows})), zerodfl()) == TAKEN
    rows[0, 0] = length * 1.001
    assert gate.check(message(tensors=Tensors({"context": rows})), zerodfl())[1] == "norm"
