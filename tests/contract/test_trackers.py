"""Hold the fake tracker and the real ones to the same contract; read their files back.

W&B and MLflow are big and not among the development packages. Install them into a folder of their
own (pip install --target FOLDER wandb mlflow) and name it in FEDNODE_TRACKERS.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fednode.lab.track.base import Run, Tracker
from tests.contract.fake_tracker import FakeTracker
from tests.contract.tracker_suite import Kept, Read, TrackerContract

if "FEDNODE_TRACKERS" in os.environ:  # behind all installed packages
    sys.path.append(os.environ["FEDNODE_TRACKERS"])


def needed(package: str) -> Any:
    """Return a package, or skip the test."""
    reason = f"{package} is not installed; see the head of this file"
    return pytest.importorskip(package, reason=reason, exc_type=ImportError)


class TestFake(TrackerContract):
    @pytest.fixture
    def kind(self) -> type[Tracker]:
        return FakeTracker

    @pytest.fixture
    def read(self) -> Read:
        def read(run: Run) -> Kept:
            figures: dict[str, list[tuple[int, float]]] = {}
            tables, group, settings = {}, "", {}
            for line in (run.folder / f"{run.slug}.jsonl").read_text().splitlines():
                word, *rest = json.loads(line)
                if word == "begin":
                    _, group, settings = rest
                elif word == "log":
                    for name, value in rest[1].items():
                        figures.setdefault(name, []).append((rest[0], value))
                elif word == "table":
                    tables[rest[0]] = rest[1]
            shown = {name: str(one) for name, one in settings.items()}
            return Kept(figures, shown, group, tables)

        return read


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of an event file: length, its checksum, the record, its checksum."""
    held, at = path.read_bytes(), 0
    while at < len(held):
        (length,) = struct.unpack_from("<Q", held, at)
        yield held[at + 12 : at + 12 + length]
        at += 16 + length


@pytest.mark.filterwarnings("ignore")
class TestTensorBoard(TrackerContract):
    @pytest.fixture
    def kind(self) -> type[Tracker]:
        needed("tensorboardX")
        from fednode.lab.track.tensorboard import TensorBoard

        return TensorBoard

    @pytest.fixture
    def read(self) -> Read:
        def read(run: Run) -> Kept:
            from tensorboardX.proto.event_pb2 import Event

            figures: dict[str, list[tuple[int, float]]] = {}
            texts: dict[str, str] = {}
            files = sorted((run.folder / run.slug).iterdir())
            for record in (one for file in files for one in records(file)):
                event = Event.FromString(record)
                for value in event.summary.value:
                    if value.tensor.string_val:
                        name = value.tag.removesuffix("/text_summary")
                        texts[name] = value.tensor.string_val[0].decode()
                    else:
                        points = figures.setdefault(value.tag, [])
                        points.append((event.step, value.simple_value))
            lines = [line.strip().split(": ", 1) for line in texts.pop("settings").splitlines()]
            settings = dict(lines)
            return Kept(figures, settings, settings["group"], texts)

        return read


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestTensorBoardsOwnReader:
    """TensorBoard itself reads what fednode wrote."""

    def test_it_finds_runs_figures_and_texts(self, tmp_path: Path) -> None:
        needed("tensorboardX")
        needed("tensorboard")
        from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

        from fednode.lab.track.tensorboard import TensorBoard

        for name in ("node-1", "node-2"):
            tracker = TensorBoard(Run(name=name, group="m", folder=tmp_path, settings={"a": 1}))
            tracker.log(1, {"accuracy/own": 0.5})
            tracker.log(2, {"accuracy/own": 0.75})
            tracker.close()
        found = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
        found.Reload()
        assert set(found.Runs()) == {"node-1", "node-2"}
        points = found.Scalars("node-2", "accuracy/own")
        assert [(one.step, one.value) for one in points] == [(1, 0.5), (2, 0.75)]
        assert (
            b"a: 1"
            in found.Tensors("node-1", "settings/text_summary")[0].tensor_proto.string_val[0]
        )


def logged(path: Path) -> Iterator[bytes]:
    """Yield the records of a W&B file: LevelDB's log format, behind a header of 7 bytes."""
    held, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(held):
        if (left := 32768 - at % 32768) < 7:  # no header crosses the end of a block
            at += left
            continue
        _, length, part = struct.unpack_from("<IHB", held, at)
        if not part:
            return
        whole += held[at + 7 : at + 7 + length]
        at += 7 + length
        if part in {1, 4}:  # a whole record, or the last part of one
            yield whole
            whole = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestWandb(TrackerContract):
    @pytest.fixture
    def kind(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Tracker]:
        monkeypatch.setenv("HOME", str(tmp_path))  # no login of the developer's own
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
        monkeypatch.delenv("WANDB_MODE", raising=False)
        needed("wandb")
        from fednode.lab.track.wandb import Wandb

        return Wandb

    @pytest.fixture
    def read(self) -> Read:
        def read(run: Run) -> Kept:
            import wandb
            from wandb.proto.wandb_internal_pb2 import Record

            wandb.teardown()  # its service writes the file after `finish` has returned
            figures: dict[str, list[tuple[int, float]]] = {}
            settings: dict[str, str] = {}
            tables: dict[str, str] = {}
            group = ""
            own = (run.folder / "ids" / f"wandb-{run.slug}").read_text()
            for file in sorted(run.folder.glob(f"wandb/offline-run-*/run-{own}.wandb")):
                for data in logged(file):
                    record = Record.FromString(data)
                    if record.WhichOneof("record_type") == "run":
                        group = record.run.run_group
                        for one in record.run.config.update:
                            settings[one.key] = str(json.loads(one.value_json))
                    step = record.history.step.num
                    for one in record.history.item:
                        name = one.key or ".".join(one.nested_key)
                        if not name.startswith("_"):
                            points = figures.setdefault(name, [])
                            points.append((step, json.loads(one.value_json)))
                for table in file.parent.glob("files/*.csv"):
                    tables[table.name] = table.read_text()
            return Kept(figures, settings, group, tables)

        return read


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestMlflow(TrackerContract):
    @pytest.fixture
    def kind(self, monkeypatch: pytest.MonkeyPatch) -> type[Tracker]:
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        needed("mlflow")
        needed("alembic")
        from fednode.lab.track.mlflow import Mlflow

        return Mlflow

    @pytest.fixture
    def read(self) -> Read:
        def read(run: Run) -> Kept:
            from mlflow.tracking import MlflowClient

            client = MlflowClient(tracking_uri=f"sqlite:///{run.folder / 'mlflow.db'}")
            experiment = client.get_experiment_by_name(run.group)
            assert experiment is not None
            runs = client.search_runs([experiment.experiment_id])
            (found,) = [one for one in runs if one.info.run_name == run.name]
            assert found.info.status == "FINISHED"
            figures = {
                name: [
                    (one.step, one.value)
                    for one in client.get_metric_history(found.info.run_id, name)
                ]
                for name in found.data.metrics
            }
            tables = {
                one.path: Path(client.download_artifacts(found.info.run_id, one.path)).read_text()
                for one in client.list_artifacts(found.info.run_id)
            }
            return Kept(figures, found.data.params, experiment.name, tables)

        return read
