"""Every fault has a stable exit code, and the codes are those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from fednode import errors
from fednode.errors import FAULT_CODES, FednodeError

FAULTS = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, FednodeError)
]
CODES = {
    "FednodeError": 2,
    "ConfigError": 2,
    "NeverMerged": 1,
    "DataError": 3,
    "ModelError": 3,
    "IdentityError": 4,
    "StateError": 4,
    "AddressError": 4,
    "Unreachable": 5,
    "KeyRefused": 6,
    "Refused": 6,
    "Declined": 1,
    "FrameError": 6,
    "VersionError": 6,
}


def test_the_codes_are_stable() -> None:
    assert {fault.__name__: fault.exit_code for fault in FAULTS} == CODES
    assert {*CODES.values()} - FAULT_CODES == {1, 5}, "an answer; and a silence that may end"


def test_the_page_on_operating_a_node_lists_the_codes() -> None:
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    section = page.split("## Exit codes", 1)[1].split("\n## ", 1)[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+)", section, re.MULTILINE)}
    assert listed == {0, 70, 130, *CODES.values()}
