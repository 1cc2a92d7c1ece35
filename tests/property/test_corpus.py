"""Every input that coverage-guided fuzzing kept, once more: `python -m tests.fuzz` found them."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_decoder_bears_all_that_was_ever_found(name: str) -> None:
    found = sorted((CORPUS / name).iterdir())
    assert found, f"no corpus of {name}"
    for path in found:
        TARGETS[name](path.read_bytes())
