"""Runs reach a tracker round by round; a tracker that fails is one sentence, and bounded."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from fednode.errors import Refused, StateError, Unreachable
from fednode.lab.track.base import Run, note_file
from fednode.lab.track.writing import Note, Patient, Writer
from tests.unit.lab.track.conftest import FAKE, broken, lines, logged

FILE = "node-1.jsonl"


async def three_rounds(writer: Writer) -> None:
    async with writer:
        for step in (1, 2, 3):
            await writer.log(step, {"loss": 1.0})


async def test_a_run_reaches_the_tracker_in_order(run: Run, tmp_path: Path) -> None:
    async with Writer(FAKE, Patient("Fake"), run) as writer:
        assert writer.where == f"Fake: {tmp_path / FILE}"
        for step in range(101):
            values = {"loss": step / 2, "none": math.nan, "much": math.inf, "text": "x"}
            await writer.log(step, values)
        await writer.log(101, {"none": math.nan})
    begin, *figures, end = lines(tmp_path / FILE)
    assert begin == ["begin", "node-1", "m", {"seed": 1}]
    assert figures == [["log", step, {"loss": step / 2}] for step in range(101)]
    assert end == ["end"]


async def test_a_run_that_is_opened_again_takes_no_round_twice(run: Run, tmp_path: Path) -> None:
    for last in (3, 3, 5):
        async with Writer(FAKE, Patient("Fake"), run) as writer:
            for step in range(1, last + 1):
                await writer.log(step, {"loss": 1.0}, f"digest {step}")
    assert logged(tmp_path / FILE) == [1, 2, 3, 4, 5]
    assert Writer(FAKE, Patient("Fake"), run).note == Note(5, "digest 5")


async def test_a_round_that_the_tracker_did_not_take_is_written_later(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(Refused):
        await three_rounds(Writer(broken("FullDisk"), Patient("Fake"), run))
    await three_rounds(Writer(FAKE, Patient("Fake"), run))
    assert logged(tmp_path / FILE) == [1, 2, 3]


async def test_a_damaged_note_begins_the_run_anew(run: Run) -> None:
    file = note_file(run, FAKE.package)
    file.parent.mkdir()
    for text in ("", "[]", '{"last": "x"}', '{"last": 1}'):
        file.write_text(text)
        assert Note.read(file) == Note()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NoNetwork", "ConnectionError: no route to tracker.example"),
        ("FullDisk", "SystemExit: no space for step 2"),
        (
            "Missing",
            "AttributeError: module 'tests.unit.lab.track.broken' has no attribute 'Missing'",
        ),
    ],
)
async def test_a_tracker_that_raises_is_one_sentence(run: Run, name: str, reason: str) -> None:
    patient = Patient("Fake")
    with pytest.raises(Refused) as caught:
        await three_rounds(Writer(broken(name), patient, run))
    assert str(caught.value) == f"Fake does not take figures: {reason}."
    assert patient.broken


async def test_a_tracker_that_hangs_is_given_up(run: Run) -> None:
    patient = Patient("Fake", limit_s=0.05)
    with pytest.raises(Unreachable, match=r"Fake did not take figures within 0\.05 s\. Start"):
        await three_rounds(Writer(broken("Hanging"), patient, run))
    assert patient.broken
    assert Writer(FAKE, patient, run).note == Note()


async def test_a_call_that_still_runs_counts_as_broken() -> None:
    patient = Patient("Fake")
    go, begun = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    seen = [patient.broken]
    waiting = asyncio.create_task(patient.call(work))
    await begun.wait()
    seen.append(patient.broken)
    go.set()
    await waiting
    assert [*seen, patient.broken] == [False, True, False]


async def test_a_note_that_cannot_be_written_is_the_node_s_own_fault(run: Run) -> None:
    """The sentence blames the folder, and not the tracker."""
    note_file(run, FAKE.package).mkdir(parents=True)
    with pytest.raises(StateError, match="cannot be written"):
        await three_rounds(Writer(FAKE, Patient("Fake"), run))
