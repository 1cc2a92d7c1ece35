"""Fuzz one decoder for some time, and keep what reaches new code: `pip install -e .[fuzz]`, then

    python -m tests.fuzz TARGET SECONDS

New inputs are kept in tests/fuzz/corpus/TARGET, the fewest that reach as much; a crash is written
to crash-* in this folder. tests/property/test_corpus.py plays all of them in each test run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

with atheris.instrument_imports(include=["fednode"]):
    from tests.fuzz.targets import CORPUS, TARGETS

LENGTH_MAX = 600
INNER = "--inner"


def main() -> int:
    """Fuzz in a process of its own, which libFuzzer ends, then shrink what it kept."""
    if len(sys.argv) != 3 or sys.argv[1] not in TARGETS or not sys.argv[2].isdigit():
        print(f"usage: python -m tests.fuzz {{{','.join(TARGETS)}}} SECONDS", file=sys.stderr)
        return 2
    name, seconds = sys.argv[1:]
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as found, tempfile.TemporaryDirectory() as fewest:
        code = _fuzzer(name, f"-max_total_time={seconds}", found, str(kept))
        if code:
            return code
        code = _fuzzer(name, "-merge=1", fewest, str(kept), found)
        merged = list(Path(fewest).iterdir())
        if code or not merged:
            return code or 1
        for path in kept.iterdir():
            path.unlink()
        for path in merged:
            (kept / path.name).write_bytes(path.read_bytes())
    return 0


def _fuzzer(name: str, *options: str) -> int:
    command = [sys.executable, "-m", "tests.fuzz", INNER, name, *options]
    return subprocess.run([*command, f"-max_len={LENGTH_MAX}"], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == [INNER]:
        again = f"{sys.executable} -m tests.fuzz {INNER} {sys.argv[2]}"  # merging starts it anew
        atheris.Setup([again, *sys.argv[3:]], TARGETS[sys.argv[2]])
        atheris.Fuzz()
    sys.exit(main())
