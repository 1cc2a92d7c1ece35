"""A stand-in for a daemon: honours the command line of `fednode start`, needs no torch or port.

What it would say over the status RPC it writes into its log, one line of JSON, which LogObserver
reads. `--set fake.*=` settings tell it to misbehave.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence

# Set by `fake.life`; what tests wait for.
FINISHED = "finished"


def options(arguments: Sequence[str]) -> dict[str, str]:
    """Return flags and settings of `start --flag value ... --set key=value ...` as one map."""
    pairs = list(zip(arguments[0::2], arguments[1::2], strict=True))
    found = {flag.lstrip("-"): value for flag, value in pairs if flag != "--set"}
    return found | dict(value.split("=", 1) for flag, value in pairs if flag == "--set")


def say(given: dict[str, str]) -> None:
    """Write the status that the settings ask for."""
    number = int(given["name"].rsplit("-", 1)[1])
    gain = 0.1 if given.get("policy.name") == "zerodfl" else 0.0
    seed = int(given.get("seed", "0"))
    metrics = {"base": 0.3 + 0.01 * number, "new": 0.2 + gain + 0.001 * seed, "own": 0.9}
    zero = {"zero_shot_base": 0.25, "zero_shot_new": 0.22, "zero_shot_own": 0.6}
    report = {
        "arguments": sys.argv[1:],
        "pid": os.getpid(),
        "name": given["name"],
        "life": given.get("fake.life", FINISHED),
        "round": 2,
        "rounds_max": int(given.get("rounds.max", "2")),
        "metrics": metrics | zero,
        "payload": 1000 if gain else 0,
    }
    print(json.dumps(report), flush=True)


def main() -> None:
    """Run until SIGTERM, or misbehave as told."""
    verb, *rest = sys.argv[1:]
    given = options(rest)
    assert verb == "start"
    if given.get("fake.stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if given.get("fake.exit") == given["name"]:
        print("The prompt is out of ink.", flush=True)
        sys.exit(int(given["fake.code"]))
    say(given)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
