"""Single attacks on live daemons: connections, revoked keys, the page, files that are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.attacks.probes import CASES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize("case", CASES)
async def test_daemons_refuse_or_bear_each(case: str, tmp_path: Path) -> None:
    assert await CASES[case](tmp_path) == 0, "see the lines with WRONG"
