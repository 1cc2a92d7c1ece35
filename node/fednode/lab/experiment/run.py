"""Run all cells of an experiment, each outcome in a file of its own.

A cell is (method, seed, domain left out). Its file names what it was made from, so that a run that
was stopped goes on where it was, and a changed setting makes its cells anew and no others.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from fednode import __version__
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.core import foreign
from fednode.errors import FednodeError
from fednode.lab.experiment import scene
from fednode.lab.experiment.cell import Parts
from fednode.lab.experiment.cell import run as run_cell
from fednode.lab.experiment.cells import ELSEWHERE, FOLDER, Cell, Done, Outcome
from fednode.lab.experiment.executors import Pool
from fednode.lab.experiment.files import learns, settings_of
from fednode.lab.experiment.settings import Experiment, MethodSettings
from fednode.learn.cache import cache_of
from fednode.learn.features import Features
from fednode.learn.settings import CacheSettings
from fednode.settings.read import tree_of
from fednode.storage.disk import explained, put

REASON_MAX: Final = 400
"""Most characters of what a cluster says about a run that it lost; the last ones."""
PARTS: Final = ("model", "policy", "tuning", "privacy", "rounds", "guard", "limits", "topology")
"""The sections of a node's settings that an outcome depends on."""


def cells(experiment: Experiment) -> list[Cell]:
    """Return all cells, seeds first, so that a table has something of every method early."""
    return [
        Cell(method, seed, target, _key(experiment, method, seed, target))
        for seed in experiment.seeds
        for target in scene.targets(experiment)
        for method in experiment.methods
    ]


def _key(experiment: Experiment, method: MethodSettings, seed: int, target: str) -> str:
    """Return a digest of all that an outcome depends on; a default that changes is a part of it."""
    tree = asdict(experiment)
    for name in ("title", "methods", "seeds", "smoke", "vary", "cache", "against"):
        del tree[name]
    del tree["protocol"]["targets"]
    own = asdict(method)
    for name in ("label", "paper", "privacy", "guard"):  # the last two are among the settings
        del own[name]
    own.update(seed=seed, target=target, version=__version__, experiment=tree)
    if learns(method):
        whole = tree_of(settings_of(experiment, method, experiment.title, ("x",)))
        own["settings"] = {name: whole[name] for name in PARTS}
        own.update(_code(str(method.policy["name"])))
    text = json.dumps(own, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _code(name: str) -> dict[str, str]:
    """Return a digest of the module of a method `module:Class`; nothing for other methods."""
    module, colon, _ = name.partition(":")
    file = getattr(sys.modules.get(module), "__file__", None) if colon else None
    return {"code": hashlib.sha256(Path(file).read_bytes()).hexdigest()} if file else {}


def run_all(
    experiment: Experiment,
    folder: Path,
    pool: Pool,
    progress: Callable[[Done], None],
    known: Mapping[str, Outcome] | None = None,
) -> list[Done]:
    """Run the cells that have no file in a folder yet; return all cells in order.

    progress: called for each cell as it ends. known: outcomes by the cell's key, which are not run
    again either. Raise StateError if the folder cannot be written.
    """
    wanted, todo, ended = cells(experiment), list[Cell](), dict[str, Done]()
    for cell in wanted:
        outcome = _read(cell.path(folder)) or (known or {}).get(cell.key)
        if outcome is None:
            todo.append(cell)
        else:
            ended[cell.file] = Done(cell, outcome, fresh=False)
            progress(ended[cell.file])
    with explained(f"{folder / FOLDER} cannot be made", f"; choose another {ELSEWHERE}."):
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)  # for tables, if no cell is missing
    for done in _run(experiment, todo, pool):
        ended[done.cell.file] = _written(done, folder)
        progress(ended[done.cell.file])
    return [ended[cell.file] for cell in wanted]


def _run(experiment: Experiment, todo: Sequence[Cell], pool: Pool) -> Iterator[Done]:
    waiting, running = [*reversed(todo)], dict[Future[Done], Cell]()
    while waiting or running:
        while waiting and len(running) < pool.at_once:
            cell = waiting.pop()
            running[pool.submit(attempt, experiment, cell)] = cell
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield _ended(running.pop(future), future, pool.local)


def _ended(cell: Cell, future: Future[Done], local: bool) -> Done:
    try:
        return future.result()
    except BrokenProcessPool:
        text = "a process of the experiment was ended, for lack of memory, say; use fewer --workers"
        return Done(cell, {}, text)
    except Exception as fault:
        if local:
            raise
        said = " ".join(str(fault).split())[-REASON_MAX:]
        return Done(cell, {}, f"the cluster lost this run: {type(fault).__name__}: {said}")


def _written(done: Done, folder: Path) -> Done:
    """Write a cell's outcome, or the trace of a defect beside it."""
    path = done.cell.path(folder)
    if not done.fault:
        put(path, json.dumps(done.outcome, indent=1), ELSEWHERE, for_all=True)
    if not done.trace:
        return done
    file = path.with_suffix(".fault.txt")
    put(file, done.trace, ELSEWHERE, for_all=True)
    return replace(done, fault=f"{done.fault} (a defect; its trace is in {file})")


def attempt(experiment: Experiment, cell: Cell) -> Done:
    try:
        return Done(cell, _outcome(experiment, cell))
    except FednodeError as fault:
        return Done(cell, {}, str(fault))
    except Exception as fault:
        said = f"{type(fault).__name__}: {foreign.line(str(fault), most=REASON_MAX)}"
        return Done(cell, {}, said, "".join(traceback.format_exception(fault)))


@lru_cache(maxsize=1)
def _parts(model: ModelSettings, settings: CacheSettings) -> Parts:
    frozen, cache = clip.load(model), cache_of(settings)
    return Parts(frozen, Features(frozen, cache), cache)


def _outcome(experiment: Experiment, wanted: Cell) -> Outcome:
    parts = _parts(experiment.model, experiment.cache)
    made = scene.scene(experiment, wanted.seed, wanted.target, parts.cache)
    return {
        "method": wanted.method.label,
        "seed": wanted.seed,
        "target": wanted.target,
        "backbone": parts.frozen.label,
        "fingerprint": parts.frozen.fingerprint,
        "torch": metadata.version("torch"),
        "ended": time.time(),
        **run_cell(experiment, wanted.method, wanted.seed, made, parts),
    }


def _read(path: Path) -> Outcome | None:
    try:
        outcome = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return None  # torn by a crash of the machine: made anew
    return outcome if isinstance(outcome, dict) and "scores" in outcome else None
