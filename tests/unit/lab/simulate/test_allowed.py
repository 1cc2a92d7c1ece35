"""What a scenario allows of faults."""

from __future__ import annotations

import pytest

from fednode.lab.simulate.allowed import FaultSettings


@pytest.mark.parametrize("wrong", [{"loss": 0.95}, {"duplicates": 2.0}, {"delay_s": -1.0}])
def test_shares_and_times_of_faults_are_bounded(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"faults.{next(iter(wrong))}"):
        FaultSettings(**wrong)  # type: ignore[arg-type]
