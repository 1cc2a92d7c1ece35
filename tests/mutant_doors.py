"""Mutants of the bounds on callers, on files and on claims: each bound is left out once."""

from __future__ import annotations

from typing import Final

from tests.mutant import Mutant

_LIMITER: Final = ("tests/unit/transports/test_connection_limiter.py",)
_LIMITS: Final = ("tests/unit/transports/test_limits.py",)
_RELAY: Final = ("tests/unit/transports/test_relay_service.py",)
_DISK: Final = ("tests/unit/storage/test_disk.py",)
DOORS: Final = {
    "limiter-calls": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "too_many / self.calls_s * self.leak_s",
        "0.0",
        _LIMITER,
    ),
    "limiter-silent": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "        if line in self._unknown:\n            line.cut()\n",
        "        pass\n",
        _LIMITER,
    ),
    "limiter-heads": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "self.unknown and self._came > UNKNOWN_BYTES",
        "False",
        _LIMITER,
    ),
    "limiter-doors": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "or account.add(DOOR_BYTES, now) > 0",
        "",
        _LIMITER,
    ),
    "limiter-room": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "most = max((one.account for one in self._unknown), key=lambda one: len(one.lines))",
        "most = next(iter(self._unknown)).account",
        _LIMITER,
    ),
    "limiter-ban": Mutant(
        "node/fednode/transports/connection_limiter.py",
        "fine = now >= line.account.banned_until and not many",
        "fine = not many",
        _LIMITER,
    ),
    "limits-calls": Mutant(
        "node/fednode/transports/limits.py",
        "self._held[key] >= most",
        "False",
        _LIMITS,
    ),
    "limits-guests": Mutant(
        "node/fednode/transports/limits.py",
        "fine = method == DIAL if caller.by else method.startswith(ENROLMENT)",
        "fine = True",
        _LIMITS,
    ),
    "relay-guest": Mutant(
        "node/fednode/transports/relay_service.py",
        "isinstance(caller, Guest) and caller.by == to",
        "isinstance(caller, Guest)",
        _RELAY,
    ),
    "relay-pair": Mutant(
        "node/fednode/transports/relay_service.py",
        "self._per_pair[frozenset((name, to))] >= most",
        "False",
        _RELAY,
    ),
    "relay-ticket": Mutant(
        "node/fednode/transports/relay_service.py",
        "stream is None or stream.called != name or stream.taken.done()",
        "stream is None",
        _RELAY,
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
        "node/fednode/core/rounds/quorum.py",
        "return enough if live <= enough else max(2, (others + 1) // 2 + 1)",
        "return enough",
        ("tests/unit/core/rounds/test_quorum.py",),
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
        "if peer in self._repeated:",
        "if False:",
        ("tests/unit/core/rounds/test_exchange.py",),
    ),
    "decode-memory": Mutant(
        "node/fednode/data/decode.py",
        "    _limit_memory()\n",
        "",
        ("tests/unit/data/test_decode_child.py",),
    ),
    "decode-time": Mutant(
        "node/fednode/data/decode.py",
        "if not self._line.poll(TIME_S):",
        "if False:",
        ("tests/unit/data/test_decode_child.py",),
    ),
    "decode-usual": Mutant(
        "node/fednode/data/decode.py",
        "if not usual or os.fstat(file.fileno()).st_size > USUAL_BYTES:",
        "if not usual:",
        ("tests/unit/data/test_decode_child.py",),
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
