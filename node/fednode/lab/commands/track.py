"""`fednode track NODE --to TRACKER`: write a node's rounds as JSON lines, or into a tracker.

The command asks a node for its rounds, as `fednode status` asks for its status. A node does not
know of it and never waits for it. Each start of the command begins a run of its own, which has all
rounds that the node holds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.app.client import Make, reach
from fednode.core import foreign
from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.errors import ConfigError, FednodeError, Refused
from fednode.terminal.options import PATH
from fednode.wire.gen import status_pb2

POLL_S: Final = 2.0
"""Seconds between two questions to a node that runs."""
OUT: Final = Path("runs") / "track"
"""Folder of the trackers' files, a folder for each mesh."""
COUNTERS: Final = tuple(field.name for field in status_pb2.Traffic.DESCRIPTOR.fields)
NAMES: Final = {
    "loss": "loss/training",
    "validation_loss": "loss/validation",
    **{split: f"accuracy/{split}" for split in SPLITS},
    **{f"{ZERO_SHOT}{split}": f"zero-shot accuracy/{split}" for split in SPLITS},
}
"""The names of a round's metrics in a tracker."""
MLFLOW_VALUE: Final = 500
"""Most characters of a setting; databases of MLflow take no more."""
Log = Callable[[int, Mapping[str, float]], None]
"""Take the figures of a round, all finite."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run in a tracker, with the node's settings. folder: where a local tracker writes."""

    name: str
    settings: Mapping[str, str]
    folder: Path


@contextmanager
def jsonl(run: Run) -> Iterator[Log]:
    """Print a line for each round, for programs of your own."""
    yield lambda number, values: click.echo(
        json.dumps(
            {"mesh": run.settings["mesh"], "node": run.settings["node"], "round": number, **values}
        )
    )


@contextmanager
def tensorboard(run: Run) -> Iterator[Log]:
    from tensorboardX import SummaryWriter

    def log(number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, number)
        writer.flush()

    with SummaryWriter(str(run.folder / run.name)) as writer:
        settings = "\n".join(f"    {name}: {value}" for name, value in run.settings.items())
        writer.add_text("settings", settings, 0)
        click.echo(f"TensorBoard: tensorboard --logdir {run.folder}")
        yield log


@contextmanager
def wandb(run: Run) -> Iterator[Log]:
    """Log to Weights & Biases, offline without a login; W&B's own variables hold."""
    import wandb

    # No output of the program, no figures of the machine, no source code: only figures leave here.
    quiet = wandb.Settings(
        silent=True,
        console="off",
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    # Without a login `init` would ask the terminal for a key.
    online = "WANDB_MODE" in os.environ or wandb.login(prompt=False)
    with wandb.init(
        project=os.environ.get("WANDB_PROJECT", "fednode"),
        group=os.environ.get("WANDB_RUN_GROUP", run.settings["mesh"]),
        name=run.name,
        config=dict(run.settings),
        dir=run.folder,
        mode=None if online else "offline",
        settings=quiet,
    ) as written:
        click.echo(f"W&B: {written.url or f'wandb sync {run.folder}/wandb/offline-run-*'}")
        yield lambda number, values: written.log(dict(values), step=number, commit=True)


@contextmanager
def mlflow(run: Run) -> Iterator[Log]:
    """Log to the MLflow of MLFLOW_TRACKING_URI, or to a database in the run's folder."""
    # MLflow reports the use of its functions to its makers unless it is told not to.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder.resolve()}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(run.settings["mesh"])
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params({name: value[:MLFLOW_VALUE] for name, value in run.settings.items()})
        click.echo(f"MLflow: mlflow ui --backend-store-uri {uri}")
        yield lambda number, values: mlflow.log_metrics(dict(values), step=number)


Tracker = Callable[[Run], AbstractContextManager[Log]]
TRACKERS: Final[Mapping[str, tuple[Tracker, str]]] = {
    "jsonl": (jsonl, "json"),
    "tensorboard": (tensorboard, "tensorboardX"),
    "wandb": (wandb, "wandb"),
    "mlflow": (mlflow, "mlflow"),
}
"""Each tracker, and the package that it needs."""


@click.command()
@click.argument("node", metavar="NODE")
@click.option("--to", "kind", type=click.Choice([*TRACKERS]), required=True, help="The tracker.")
@click.option("--once", is_flag=True, help="Write what the node holds now; do not follow it.")
@click.option("--peers", "peers_path", type=PATH, help="Mesh to find a name in [peers.yaml].")
@click.option("--state", type=PATH, help="Whose key to use where the mesh speaks TLS.")
@click.option("--folder", type=PATH, help="Where a local tracker writes [runs/track/MESH].")
def track(
    node: str,
    kind: str,
    once: bool,
    peers_path: Path | None,
    state: Path | None,
    folder: Path | None,
) -> None:
    """Write the rounds of a node to an experiment tracker, and follow it to its last round.

    NODE is host:port, or a name. jsonl prints a line of JSON for each round.
    """
    tracker, package = TRACKERS[kind]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise ConfigError(
            f"The tracker {kind} needs the package {package}, which is not installed: run "
            f"pip install 'fednode[{kind}]'."
        )
    make, ((_, address),) = reach(node, peers_path, state)
    try:
        uvloop.run(follow(make, address, tracker, folder, once))
    except FednodeError:
        raise
    except Exception as fault:  # a tracker may raise anything
        why = foreign.line(f"{type(fault).__name__}: {fault}").rstrip(". ")
        raise Refused(f"{kind} does not take figures: {why}.") from None


async def follow(
    make: Make,
    address: str,
    tracker: Tracker,
    folder: Path | None = None,
    once: bool = False,
    poll_s: float = POLL_S,
) -> None:
    """Write the rounds that a node holds, then new rounds until its last one.

    once: write what the node holds now, and end. Raise Unreachable if the node does not answer.
    """
    async with make() as client:
        status = await client.status(address)
        with tracker(run_of(status, folder)) as log:
            last = 0
            while True:
                for entry in await client.history(address, last + 1):
                    log(entry.round, figures(entry))
                    last = entry.round
                if once or status.life == "finished":
                    return
                await asyncio.sleep(poll_s)
                status = await client.status(address)


def run_of(status: status_pb2.StatusReply, folder: Path | None = None) -> Run:
    folder = folder or OUT / status.mesh
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "mesh": status.mesh,
        "node": status.name,
        "policy.name": status.policy,
        "model": status.model,
        "backbone": status.backbone,
        "settings fingerprint": status.fingerprint,
        "rounds.max": str(status.rounds_max),
        "training images": str(status.samples),
        "version": status.version,
    }
    return Run(status.name + time.strftime("-%Y%m%d-%H%M%S"), settings, folder)


def figures(entry: status_pb2.Round) -> dict[str, float]:
    """Return the finite figures of a round by their names in a tracker.

    Losses and accuracies (0 to 1) are those of the node's status. traffic: counted from the node's
    start, in bytes or, for messages_in and messages_out, in messages.
    """
    named = {NAMES.get(name, f"metrics/{name}"): value for name, value in entry.metrics.items()}
    named |= {f"traffic/{name}": float(getattr(entry.traffic, name)) for name in COUNTERS}
    return {name: value for name, value in named.items() if math.isfinite(value)}
