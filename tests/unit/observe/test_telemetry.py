"""What is counted, kept over a restart, logged and shown."""

from __future__ import annotations

import logging

import pytest

from fednode.core.events import Record
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.observe.events import TROUBLES
from fednode.observe.telemetry import PACE_OF, Exchanged, Telemetry
from fednode.transports.framing import Traffic, wire_bytes
from fednode.wire.gen import status_pb2


def test_messages_and_bytes_are_counted_by_peer_and_together() -> None:
    telemetry = Telemetry()
    telemetry.count("b", "out", 10, 20)
    telemetry.count("b", "out", 1, 2)
    telemetry.count("c", "in", 100, 200)
    sent = Traffic(2, 11, 22, wire_bytes(20) + wire_bytes(2))
    received = Traffic(1, 100, 200, wire_bytes(200))
    assert telemetry.peers == {"b": Exchanged(sent=sent), "c": Exchanged(received=received)}
    assert telemetry.total == Exchanged(received, sent)


def test_counters_survive_a_restart_and_unknown_ones_are_passed_over() -> None:
    telemetry = Telemetry()
    telemetry.count("b", "out", 10, 20)
    telemetry.count("b", "in", 30, 50)
    again = Telemetry.restored(telemetry.meters())
    assert (again.total, again.peers) == (telemetry.total, telemetry.peers)
    later = {"b": {"messages_in": 2, "of_a_later_version": 9}}
    assert Telemetry.restored(later).total == Exchanged(Traffic(2))
    assert Telemetry.restored({}).total == Exchanged()


def test_counters_have_the_names_of_the_status_service() -> None:
    exchanged = Exchanged(received=Traffic(1, 2, 3, 4), sent=Traffic(5, 6, 7, 8))
    assert exchanged.as_dict() == {
        "messages_in": 1,
        "payload_in": 2,
        "serialized_in": 3,
        "wire_in": 4,
        "messages_out": 5,
        "payload_out": 6,
        "serialized_out": 7,
        "wire_out": 8,
    }
    assert Exchanged.of(exchanged.as_dict()) == exchanged
    assert {one.name for one in status_pb2.Traffic.DESCRIPTOR.fields} == set(exchanged.as_dict())


def test_the_pace_is_the_median_of_the_latest_rounds() -> None:
    ends = iter([0.0, 2.0, 4.0, 100.0, 103.0, 105.0, *(110.0 + 5 * at for at in range(PACE_OF))])
    telemetry = Telemetry(clock=lambda: next(ends))
    snapshot = Snapshot(PolicyState(1, Tensors(), Tensors()), {})

    def after(rounds: int) -> float:
        for _ in range(rounds):
            telemetry.committed(snapshot, (), 0.0)
        return telemetry.round_s

    assert after(1) == 0.0
    assert after(2) == 2.0
    assert after(3) == 2.0  # 2, 2, 96, 3, 2
    assert after(PACE_OF) == 5.0


def test_accuracies_are_kept_until_they_are_measured_again() -> None:
    telemetry = Telemetry()
    telemetry.measure({"own": 0.5, "zero_shot_own": 0.4, "loss": 1.0})
    telemetry.measure({"own": 0.6, "loss": 0.9})
    assert telemetry.measured == {"own": 0.6, "zero_shot_own": 0.4}


def test_figures_of_a_run_end_where_the_rounds_begin_again() -> None:
    telemetry = Telemetry()
    telemetry.count("b", "out", 10, 20)
    for number in (1, 2):
        state = PolicyState(number, Tensors(), Tensors())
        telemetry.committed(Snapshot(state, {"own": 0.5, "zero_shot_own": 0.4}), (), 0.0)
    telemetry.compared(["mesh 51.5, alone 43.4"])
    assert telemetry.measured == {"own": 0.5, "zero_shot_own": 0.4}
    assert len(telemetry.gains) == 1
    telemetry.committed(Snapshot(PolicyState(0, Tensors(), Tensors()), {}), (), 0.0)
    assert telemetry.measured == {"zero_shot_own": 0.4}
    assert (telemetry.gains, telemetry.round_s) == ([], 0.0)
    assert telemetry.total.sent.messages == 1, "the traffic of the node counts on"


def test_records_are_logged_and_only_warnings_and_errors_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry = Telemetry()
    with caplog.at_level(logging.DEBUG, "fednode"):
        for level in ("debug", "info", "warning", "error"):
            telemetry.record(Record("kind", f"a {level}", level))
    assert [one.levelname for one in caplog.records] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    assert [one.record.text for one in telemetry.events.troubles] == ["a warning", "a error"]


def test_old_events_make_room() -> None:
    telemetry = Telemetry()
    for number in range(TROUBLES + 5):
        telemetry.record(Record("kind", str(number), "error"))
    kept = list(telemetry.events.troubles)
    assert len(kept) == TROUBLES
    assert kept[0].record.text == "5"
