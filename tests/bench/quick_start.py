"""Follow README's quick start with three domains as own images, and compare it with training alone.

    python -m tests.bench.quick_start --data data/PACS [--seeds 1 2 3] [--rounds 50]
        [--domains art_painting cartoon photo] [--init "--others other-domains"]

For each seed, `fednode init`, three times `fednode start` and then `fednode eval` run as they stand
in README: once as `init` writes the settings, and once with the policy `local` and the same tuning,
which has as many steps over the same images. Printed and kept under runs/bench: the accuracy of
each node on the test images of its own domain, and the paired difference with its 95 % interval
(Student's t over seeds and nodes). Exit code 1 if a node has not merged from both others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final

from fednode.learn.cache import default_folder
from fednode.settings.read import load_settings
from tests.bench.figures import publish
from tools.held_out import half_width

NAMES: Final = ("a", "b", "c")
DOMAINS: Final = ("art_painting", "cartoon", "photo")
LIMIT_S: Final = 1200.0
POLL_S: Final = 3.0
PROGRAM: Final = (sys.executable, "-m", "fednode.cli")
LOCAL: Final = "local"
MESH: Final = "mesh"
"""Folder of the mesh, below the home folder."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A node after its run. merged: whether rows or prompts of both others arrived."""

    seed: int
    policy: str
    node: str
    own: float
    zero_shot: float
    merged: bool


def environment(root: Path) -> dict[str, str]:
    """Return an environment whose home folder is `root`, with this user's cache."""
    return os.environ | {"HOME": str(root), "XDG_CACHE_HOME": str(default_folder().parent)}


def call(root: Path, *words: str) -> str:
    """Run fednode in the folder of the mesh; raise RuntimeError with its fault, if it has one."""
    ended = subprocess.run(
        [*PROGRAM, *words],
        cwd=root / MESH, env=environment(root), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise RuntimeError(f"fednode {shlex.join(words)}: {ended.stderr or ended.stdout}")
    return ended.stdout


def states(root: Path) -> list[dict[str, Any]]:
    """Return the status of the nodes that answer."""
    ended = subprocess.run(
        [*PROGRAM, "status", "--format", "json"],
        cwd=root / MESH, env=environment(root), capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(ended.stdout) if ended.returncode == 0 else []
    return found


def control(data: Path, init: Sequence[str]) -> list[str]:
    """Return the settings by which `local` tunes as the mesh does that `init` writes."""
    with _home() as root:
        call(root, "init", "--data", str(data), *init)
        found = asdict(load_settings(root / MESH / "node.yaml", {}, ()).tuning)
    return [f"tuning.{key}={json.dumps(value)}" for key, value in found.items() if key != "start"]


def run(data: list[Path], seed: int, init: Sequence[str], flags: Sequence[str]) -> list[Outcome]:
    """Run one mesh from `init` to `eval`."""
    with _home() as root:
        call(root, "init", "--data", str(data[0]), *init)
        folder, more = root / MESH, [f"--set={one}" for one in flags]
        daemons = []
        try:
            for name, images in zip(NAMES, data, strict=True):
                words = ["start", "--peers", "peers.yaml", "--config", "node.yaml", "--name", name]
                words += [f"--set=data.path={images}", f"--set=seed={seed}", *more]
                words += ["--set=tuning.threads=1"]
                with (folder / f"{name}.log").open("wb") as log:
                    started = subprocess.Popen(
                        [*PROGRAM, *words],
                        cwd=folder, env=environment(root), stdout=log, stderr=log,
                    )  # fmt: skip
                    daemons.append(started)
            until = time.monotonic() + LIMIT_S
            while len(found := _finished(states(root))) < len(NAMES):
                late = time.monotonic() > until
                if late or any(one.poll() is not None for one in daemons):
                    logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
                    raise RuntimeError(f"the nodes did not finish:\n{logs}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemons[0].wait(POLL_S)
        finally:
            for one in daemons:
                one.send_signal(signal.SIGTERM)
            codes = [one.wait() for one in daemons]
        if any(codes):
            raise RuntimeError(f"exit codes {codes}")
        return [_outcome(root, seed, one) for one in found]


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    """Give a temporary home folder with an empty folder for the mesh."""
    with tempfile.TemporaryDirectory(prefix="fednode-quick-") as made:
        (Path(made) / MESH).mkdir()
        yield Path(made)


def _finished(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["life"] == "finished"]


def _outcome(root: Path, seed: int, status: dict[str, Any]) -> Outcome:
    measured = json.loads(call(root, "eval", "--state", status["name"], "--format", "json"))
    came = [int(one["traffic"]["payload_in"]) for one in status["peers"]]
    return Outcome(
        seed=seed,
        policy=status["policy"],
        node=status["name"],
        own=measured["tuned"]["own"],
        zero_shot=measured["zero-shot"]["own"],
        merged=len(came) == len(NAMES) - 1 and all(came),
    )


def main() -> int:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quick_start", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="a folder of domains")
    parser.add_argument("--domains", nargs=3, default=DOMAINS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, help="of both [as init writes them]")
    parser.add_argument("--init", default="", help="more words for `fednode init`")
    given = parser.parse_args()
    data = [(given.data / one).resolve() for one in given.domains]
    init = shlex.split(given.init)
    init += [] if given.rounds is None else ["--rounds", str(given.rounds)]
    done: list[Outcome] = []
    flags = control(data[0], init)
    for seed in given.seeds:
        ours = run(data, seed, init, [])
        alone = run(data, seed, [*init, "--policy", LOCAL], flags)
        for mine, other in zip(ours, alone, strict=True):
            done += [mine, other]
            sys.stdout.write(f"seed {seed}, {mine.node}: {mine} {other}\n")
            sys.stdout.flush()
    return report(done)


def report(done: Sequence[Outcome]) -> int:
    """Print and keep the figures; return the exit code."""
    pairs = list(zip(done[::2], done[1::2], strict=True))
    gains = [100 * (mine.own - alone.own) for mine, alone in pairs]
    middle = mean(gains)
    wide = half_width(gains)
    rows: list[dict[str, str | float]] = [
        {
            "seed and node": f"{mine.seed} {mine.node}",
            "zero-shot, %": 100 * mine.zero_shot,
            "local, %": 100 * alone.own,
            "with the peers, %": 100 * mine.own,
            "difference": gain,
        }
        for (mine, alone), gain in zip(pairs, gains, strict=True)
    ]
    title = f"quick start, {done[0].policy}: difference {middle:+.2f}, 95 % interval "
    publish("quick-start", title + f"{middle - wide:+.2f} to {middle + wide:+.2f}", rows)
    return 0 if all(mine.merged for mine, _ in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
