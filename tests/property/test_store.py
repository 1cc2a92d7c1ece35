"""Bits flipped in any file of a state directory: what was adopted, or a sentence; never else."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fednode.errors import StateError
from fednode.storage.store import Store
from tests.unit.storage.stored import FACTS, filled, read_snapshot, snapshot

ROUNDS = 4
COMMITTED = [snapshot(number) for number in range(1, ROUNDS + 1)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    filled(folder, ROUNDS).close()
    return folder


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), flips=st.sampled_from([1, 1, 2, 20]))
def test_a_flipped_bit_never_makes_another_state(
    whole: Path, tmp_path: Path, seed: int, flips: int
) -> None:
    chance, folder = random.Random(seed), tmp_path / str(random.getrandbits(60))
    shutil.copytree(whole, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choice([folder / "checkpoints" / f"{ROUNDS:06d}.safetensors", *files])
    data = bytearray(path.read_bytes())
    for _ in range(flips):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))
    for look in (opened, read_snapshot):
        found = None
        with contextlib.suppress(StateError):
            found = look(folder)
        assert found is None or found in COMMITTED
    shutil.rmtree(folder)


def opened(folder: Path) -> object:
    store = Store(folder)
    try:
        store.bind(FACTS)
        return store.latest()
    finally:
        store.close()
