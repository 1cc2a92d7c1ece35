"""MLflow: a run of the experiment that is named like the group.

MLFLOW_TRACKING_URI says where; without it, runs are in <folder>/mlflow.db and files beside it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# MLflow reports the use of its functions to its makers unless it is told not to.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from fednode.lab.track.base import Run, keep_id, kept_id

VALUE_MAX: Final = 500
"""Most characters of a setting; databases of MLflow take no more."""
NOT_ALLOWED: Final = re.compile(r"[^\w. :/-]")
"""Characters that names of metrics must not have."""
PARAMS_MAX: Final = 100
"""Most settings in one call."""


class Mlflow:
    """See Tracker. A setting is a parameter, a figure is a metric, a table is an artifact."""

    def __init__(self, run: Run) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        given = os.environ.get("MLFLOW_TRACKING_URI")
        self._uri = given or f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
        self._closed = False
        with _alone(run.folder):  # all runs of a mesh make the database and the experiment at once
            self._client = MlflowClient(tracking_uri=self._uri)
            known = self._client.get_experiment_by_name(run.group)
            files = None if given else (run.folder.resolve() / "mlflow-files").as_uri()
            experiment = (
                self._client.create_experiment(run.group, artifact_location=files)
                if known is None
                else known.experiment_id
            )
        self._id = self._continued(run) or self._begun(run, experiment)

    def _continued(self, run: Run) -> str | None:
        """Return the id of the run that is there already; None if there is none."""
        held = kept_id(run, "mlflow")
        try:
            self._client.update_run(held, status="RUNNING")
        except MlflowException:  # of another address, or it was deleted there
            return None
        return held

    def _begun(self, run: Run, experiment: str) -> str:
        made = self._client.create_run(experiment, run_name=run.name, tags={"group": run.group})
        params = [
            Param(name, str(setting)[:VALUE_MAX]) for name, setting in sorted(run.settings.items())
        ]
        for at in range(0, len(params), PARAMS_MAX):
            self._client.log_batch(made.info.run_id, params=params[at : at + PARAMS_MAX])
        return keep_id(run, "mlflow", str(made.info.run_id))

    @property
    def where(self) -> str:
        """How to look at the run."""
        address = self._uri.startswith(("http://", "https://"))
        return self._uri if address else f"mlflow ui --backend-store-uri {self._uri}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the figures of a step, in one call."""
        now = int(1000 * time.time())
        metrics = [
            Metric(NOT_ALLOWED.sub("_", name), value, now, step) for name, value in values.items()
        ]
        self._client.log_batch(self._id, metrics=metrics)

    def table(self, path: Path) -> None:
        """Copy the file to the run's artifacts."""
        self._client.log_artifact(self._id, str(path))

    def close(self) -> None:
        """Mark the run as finished."""
        if not self._closed:
            self._closed = True
            self._client.set_terminated(self._id)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time into a block."""
    with (folder / "mlflow.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
