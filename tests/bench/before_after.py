"""A step of tuning by two versions of fednode and by open_clip's own encoders, in turns.

`git worktree add --detach /tmp/before COMMIT && python -m tests.bench.before_after /tmp/before`
prints docs/speed.md's tables. Each side is a process of its own with one thread, and its time is
processor time, because the machine may be shared. The steps are those of `fednode bench tuning`.
Models whose tokenizers only the hub has get a tokenizer of the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parents[2]
PLAIN: Final = {
    "fednode-mini": ("text-100x16", "zerodfl-epoch-cached", "feddpt-step", "plan-stage-b"),
    "ViT-B-32": ("text-100x16", "zerodfl-epoch-cached", "plan-stage-b"),
}
"""Rows of models that both versions take."""
WHOLE: Final = {
    "MobileCLIP-S1": "",
    "coca_ViT-B-32": "",
    "ViT-B-16-SigLIP": "SigLIP",
    "roberta-ViT-B-32": "RoBERTa",
}
"""Models of whole texts, which the version before refuses, and where their tokenizers come from."""
ROW: Final = "zerodfl-epoch-cached"
WORKER: Final = """
import logging, sys, time
logging.disable(logging.CRITICAL)
from tests.bench.before_after import step_of
run = step_of(*sys.argv[1:])
run()
print("ready", flush=True)
for _ in sys.stdin:
    begun, steps = time.process_time(), 0
    while not steps or time.process_time() - begun < 0.5:
        run()
        steps += 1
    print((time.process_time() - begun) / steps, flush=True)
"""


def step_of(model: str, row: str, side: str, folder: str) -> Any:
    """Return a function that takes a step of a row; side: open_clip or fednode."""
    from fednode.lab.bench import measure, tasks
    from fednode.lab.bench.encoders import Ours, Plain

    frozen = _frozen(model, Path(folder))
    task = next(task for task in tasks.TASKS if task.name == row)
    kind = Plain if side == "open_clip" else Ours
    return measure.Step(frozen, tasks.inputs(frozen, task), kind).run


def _frozen(model: str, folder: Path) -> Any:
    from fednode.lab.bench import measure

    tokenizer = WHOLE.get(model, "")
    if not tokenizer:
        return measure.random_model(model, "float32", "cpu", 1)
    import open_clip
    import torch

    from fednode.clip import backbone, sizes
    from fednode.clip.settings import ModelSettings
    from tests.unit.clip import twins

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config: Any = open_clip.get_model_config(model)
    with sizes.given(config["text_cfg"]):
        made = open_clip.create_model(model, pretrained=None, pretrained_text=False)
    theirs = twins.TEXT[tokenizer][0](folder)
    theirs.context_length = int(config["text_cfg"].get("context_length", 77))
    preprocessing = dict(made.visual.preprocess_cfg)
    settings = ModelSettings(name=model, device="cpu")
    return backbone.wrap(made, preprocessing, theirs, model, settings)


class Side:
    """A process that takes steps when it is told to."""

    def __init__(self, tree: Path, model: str, row: str, side: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fednode-")
        paths = os.pathsep.join(map(str, (tree / "node", tree / "bootstrap", HERE)))
        words = [sys.executable, "-c", WORKER, model, row, side, self._folder.name]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self._folder.name,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.times: list[float] = []

    def ready(self) -> None:
        """Wait until the process has taken its first step."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise SystemExit("A side ended before its first step; its fault stands above.")

    def turn(self) -> None:
        """Take steps for half a second of processor time, one at least, and note the mean."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.times.append(float(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def compared(model: str, row: str, before: Path | None, turns: int) -> str:
    """Return a row of the table; before: the tree of the version before, or None."""
    sides = {"open_clip": (HERE, "open_clip"), "now": (HERE, "fednode")}
    if before is not None:
        sides["before"] = (before, "fednode")
    made = {name: Side(tree, model, row, side) for name, (tree, side) in sides.items()}
    try:
        for one in made.values():
            one.ready()
        for turn in range(turns):
            order = list(made.values())
            for one in order if turn % 2 else reversed(order):
                one.turn()
    finally:
        for one in made.values():
            one.close()
    now, theirs = made["now"].times, made["open_clip"].times
    cells = [model, f"`{row}`", str(turns), f"{median(theirs):.3g}"]
    if before is not None:
        old = made["before"].times
        ratio = median(new / old for new, old in zip(now, old, strict=True))
        cells += [f"{median(old):.3g}", f"{median(now):.3g}", f"{ratio:.3f}"]
    else:
        cells += ["-", f"{median(now):.3g}", "-"]
    cells.append(f"{median(their / new for their, new in zip(theirs, now, strict=True)):.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table: open_clip, before, now, now / before, open_clip / now."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("before", type=Path, help="a tree of the version before")
    words.add_argument("--turns", type=int, default=7)
    words.add_argument("--row", action="append", help="a row of the tables; may be repeated")
    words.add_argument("--model", action="append", help="a model of the tables; may be repeated")
    given = words.parse_args()
    for model, rows in PLAIN.items():
        for row in rows if given.model is None or model in given.model else ():
            if given.row and row not in given.row:
                continue
            print(compared(model, row, given.before.resolve(), given.turns), flush=True)
    for model in WHOLE:
        if given.model is None or model in given.model:
            print(compared(model, ROW, None, given.turns), flush=True)


if __name__ == "__main__":
    main()
