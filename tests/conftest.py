"""What all tests share: threads, garbage collection, and the examples of property tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Several processes share the tests (Makefile), so a process gets one thread. This line comes
# before any import of torch, and programs that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Property tests try the same examples each time. `make test-all` tries more of them, and
# `pytest --hypothesis-profile=explore tests/property` looks for new ones.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, print_blob=True, max_examples=50
)
settings.register_profile("thorough", settings.get_profile("repeatable"), max_examples=200)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("repeatable")


# Imports leave little garbage, and looking for it takes a tenth of the time.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts", action="store_true", help="write tests/unit/core/transcripts anew"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of daemons: they wait, and the others compute meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


def pytest_collection_finish() -> None:
    """Exempt all modules and tests from garbage collection; they live until the process ends."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter collect them at its end, as extension modules expect."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Give the process its log handlers and its signal handlers back, whatever a test ran in it."""
    loggers = [logging.getLogger(), logging.getLogger("fednode")]
    logs = [([*logger.handlers], logger.level, logger.propagate) for logger in loggers]
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signals = {number: signal.getsignal(number) for number in numbers}
    yield
    for logger, (handlers, level, propagate) in zip(loggers, logs, strict=True):
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    for number, before in signals.items():
        if before is not None and signal.getsignal(number) is not before:
            signal.signal(number, before)


@pytest.fixture(scope="session", autouse=True)
def images_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let all commands of this process share what they know of images, as those of a machine do.

    A batch of images that is not full is filled up, so batches are small.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if "torch" in sys.modules:
            patch.setattr("fednode.learn.features.BATCH", 4)
            patch.setattr("fednode.clip.trunk.CHUNK", 2)
        yield


@pytest.fixture(autouse=True)
def few_public_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes in this process encode few of the public images; all of them take seconds."""
    from tests.few_public_images import few

    monkeypatch.setattr("fednode.learn.public.public_images", few)
