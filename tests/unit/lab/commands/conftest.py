"""Images and a tiny model, as for the tests of experiments."""

from tests.unit.lab.experiment.conftest import _threads, folder, model

__all__ = ["_threads", "folder", "model"]
