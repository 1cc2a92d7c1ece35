"""A meter that counts wrong does not fit the interface's bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.interface import Account, Interface

MEASURED = Account(
    interface=Interface(bytes=3_414_000, packets=12_916, connections=189),
    wire=1_927_000,
    messages=1218,
    requests=142,
    status=173_000,
)
"""A run of eight daemons with TLS and 20 rounds."""

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


def test_a_measured_run_fits_and_its_parts_are_all_bytes() -> None:
    assert MEASURED.fault() == ""
    assert sum(MEASURED.parts().values()) == MEASURED.interface.bytes


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.2, 2.0])
def test_a_meter_that_counts_wrong_is_found(factor: float) -> None:
    wrong = replace(MEASURED, wire=int(factor * MEASURED.wire))
    assert "bytes are unexplained" in wrong.fault()


def test_the_counters_of_the_loopback_interface_are_read(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text(DEV)
    (tmp_path / "snmp").write_text(SNMP)
    assert Interface.read(tmp_path) == Interface(bytes=900, packets=9, connections=41)
