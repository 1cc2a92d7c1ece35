"""A meter that counts wrong does not fit the interface's bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.interface import Account, Interface

MEASURED = Account(
    interface=Interface(bytes=3_414_000, packets=12_916, connections=189),
    seconds=40.0,
    wire=1_927_000,
    messages=1218,
    requests=142,
    status=173_000,
)
"""A run of eight daemons with TLS and 20 rounds."""
LARGE = Account(
    interface=Interface(bytes=109_897_225, packets=558_609, connections=3_481),
    wire=37_458_765,
    messages=25_611,
    requests=3_289,
    status=15_570_000,
    seconds=315.0,
)
"""A run of 59 daemons with TLS and 50 rounds."""

DEV = """Inter-|   Receive                          |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo
    lo:  700       7    0    0    0     0          0         0   900       9    0    0    0
  eth0:    1       1    0    0    0     0          0         0     1       1    0    0    0
"""
SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm MaxConn ActiveOpens PassiveOpens
Tcp: 1 -1 41 40
"""


@pytest.mark.parametrize("measured", [MEASURED, LARGE], ids=["8 daemons", "59 daemons"])
def test_a_measured_run_fits_and_its_parts_are_all_bytes(measured: Account) -> None:
    assert measured.fault() == ""
    assert sum(measured.parts().values()) == measured.interface.bytes


@pytest.mark.parametrize(
    ("measured", "factor"),
    [*((MEASURED, one) for one in (0.5, 0.65, 1.2, 2.0)), *((LARGE, one) for one in (0.8, 1.6))],
)
def test_a_meter_that_counts_wrong_is_found(measured: Account, factor: float) -> None:
    wrong = replace(measured, wire=int(factor * measured.wire))
    assert "bytes are unexplained" in wrong.fault()


def test_the_counters_of_the_loopback_interface_are_read(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text(DEV)
    (tmp_path / "snmp").write_text(SNMP)
    assert Interface.read(tmp_path) == Interface(bytes=900, packets=9, connections=40)
