"""Mutants of the bounds on callers, on files and on claims: each bound is left out once."""

from __future__ import annotations

from typing import Final

from tests.mutant import Mutant

_METER: Final = ("tests/unit/transports/test_meter.py",)
_LINE: Final = ("tests/unit/transports/test_line.py",)
_LINES: Final = ("tests/unit/transports/test_lines.py",)
_DISK: Final = ("tests/unit/storage/test_disk.py",)
DOORS: Final = {
    "meter-calls": Mutant(
        "node/fednode/transports/meter.py",
        "self.calls <= CALLS_BURST_S * rates.calls\n",
        "True\n",
        _METER,
    ),
    "meter-records": Mutant(
        "node/fednode/transports/meter.py",
        "            and self.records <= BURST_S * rates.records\n",
        "",
        (*_METER, *_LINE),
    ),
    "meter-size": Mutant(
        "node/fednode/transports/meter.py",
        "            and self.size <= BURST_S * rates.size\n",
        "",
        _METER,
    ),
    "meter-unfinished-calls": Mutant(
        "node/fednode/transports/meter.py",
        "            or self.unfinished_calls > UNFINISHED_CALLS_MAX\n",
        "",
        _METER,
    ),
    "meter-patience": Mutant(
        "node/fednode/transports/meter.py",
        "return self.over_since is not None and now - self.over_since > OVER_S",
        "return False",
        (*_METER, *_LINE),
    ),
    "meter-rest": Mutant(
        "node/fednode/transports/meter.py",
        "self.rests_until = max(self.rests_until, now + seconds)",
        "pass",
        (*_METER, *_LINES),
    ),
    "line-header-block": Mutant(
        "node/fednode/transports/line.py", "if self._block > HEADER_BYTES_MAX:", "if False:", _LINE
    ),
    "line-visit-bytes": Mutant(
        "node/fednode/transports/line.py", "if self._size > VISIT_BYTES_MAX:", "if False:", _LINE
    ),
    "line-visit-frames": Mutant(
        "node/fednode/transports/line.py",
        "if self._visit and self._frames > VISIT_FRAMES_MAX:",
        "if False:",
        _LINE,
    ),
    "line-overdue": Mutant(
        "node/fednode/transports/line.py",
        "(PIECES_S if call.size >= CALL_BYTES else CALL_S)",
        "1e9",
        _LINE,
    ),
    "lines-sweep": Mutant(
        "node/fednode/transports/lines.py", "if line.overdue():", "if False:", _LINES
    ),
    "lines-turned-away": Mutant(
        "node/fednode/transports/lines.py",
        "if held == who and task is not asyncio.current_task():",
        "if False:",
        _LINES,
    ),
    "session-handshake": Mutant(
        "node/fednode/transports/session.py",
        "if size > HANDSHAKE_BYTES_MAX or reads > HANDSHAKE_READS_MAX:",
        "if False:",
        ("tests/unit/transports/test_session.py",),
    ),
    "driver-quarantined": Mutant(
        "node/fednode/runtime/driver.py",
        "self.transport.disconnect(id, seconds)",
        "pass",
        ("tests/unit/runtime/test_driver.py",),
    ),
    "driver-revoked": Mutant(
        "node/fednode/runtime/driver.py",
        "self.transport.disconnect(update.id, math.inf)",
        "pass",
        ("tests/unit/runtime/test_driver.py",),
    ),
    "proof-half": Mutant(
        "node/fednode/core/rounds/proof.py",
        "return enough if live <= enough else max(2, (others + 1) // 2 + 1)",
        "return enough",
        ("tests/unit/core/rounds/test_proof.py",),
    ),
    "proof-last-round": Mutant(
        "node/fednode/core/rounds/gossip.py",
        "return min(proven, last) if last else proven",
        "return proven",
        ("tests/contract/test_policies.py",),
    ),
    "proof-words": Mutant(
        "node/fednode/core/rounds/gossip.py",
        "return min(self._claimed.get(peer, 0), self._proven.get(peer, 0) + 1)",
        "return self._claimed.get(peer, 0)",
        ("tests/contract/test_policies.py",),
    ),
    "again-once": Mutant(
        "node/fednode/core/rounds/exchange.py",
        "if self._repeated[peer, why] < most else []",
        "",
        ("tests/unit/core/rounds/test_exchange.py",),
    ),
    "decode-budget": Mutant(
        "node/fednode/data/budget.py",
        "if need > self.size:",
        "if False:",
        ("tests/unit/data/test_budget.py",),
    ),
    "decode-shared": Mutant(
        "node/fednode/data/budget.py",
        "self._change.wait_for(lambda: self._used + need <= self.size)",
        "pass",
        ("tests/unit/data/test_budget.py",),
    ),
    "decode-tags": Mutant(
        "node/fednode/data/budget.py",
        "if self._left < 0:",
        "if False:",
        ("tests/unit/data/test_budget.py", "tests/unit/data/test_heads.py"),
    ),
    "files-regular": Mutant(
        "node/fednode/data/files.py",
        "if not stat.S_ISREG(status.st_mode):",
        "if stat.S_ISDIR(status.st_mode):",
        ("tests/unit/data/test_files.py",),
    ),
    "disk-others": Mutant(
        "node/fednode/storage/disk.py",
        "path.chmod(stat.S_IMODE(here.st_mode) & 0o700)",
        "pass",
        _DISK,
    ),
    "disk-all-may-write": Mutant(
        "node/fednode/storage/disk.py",
        "if status.st_mode & stat.S_IWOTH and any(folder.iterdir()):",
        "if False:",
        _DISK,
    ),
    "disk-links": Mutant(
        "node/fednode/storage/disk.py",
        'os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)',
        'os.open(folder / "lock", os.O_RDWR | os.O_CREAT, FILE_MODE)',
        _DISK,
    ),
}
