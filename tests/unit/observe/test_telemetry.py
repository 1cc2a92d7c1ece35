"""What is counted, logged and shown."""

from __future__ import annotations

import pytest

from fednode.core.events import Record
from fednode.core.types import PolicyState, Snapshot, Tensors
from fednode.observe.events import TROUBLES
from fednode.observe.telemetry import ORDINARY, PACE_OF, Exchanged, Telemetry
from fednode.transports.framing import Traffic, wire_bytes
from fednode.wire.gen import status_pb2


def adopted(telemetry: Telemetry, number: int, **metrics: float) -> None:
    telemetry.committed(Snapshot(PolicyState(number, Tensors(), Tensors()), metrics), (), 0.0)


def test_messages_and_bytes_are_counted_by_peer_and_together() -> None:
    telemetry = Telemetry()
    telemetry.count("b", "out", 10, 20)
    telemetry.count("b", "out", 1, 2)
    telemetry.count("c", "in", 100, 200)
    sent = Traffic(2, 11, 22, wire_bytes(20) + wire_bytes(2))
    received = Traffic(1, 100, 200, wire_bytes(200))
    assert telemetry.peers == {"b": Exchanged(sent=sent), "c": Exchanged(received=received)}
    assert telemetry.total == Exchanged(received, sent)


def test_counters_have_the_names_of_the_status_service() -> None:
    exchanged = Exchanged(received=Traffic(1, 2, 3, 4), sent=Traffic(5, 6, 7, 8))
    names = ("messages", "payload", "serialized", "wire")
    ways = [f"{name}_{way}" for way in ("in", "out") for name in names]
    assert exchanged.as_dict() == dict(zip(ways, range(1, 9), strict=True))
    assert {one.name for one in status_pb2.Traffic.DESCRIPTOR.fields} == set(exchanged.as_dict())


def test_the_pace_is_the_median_of_the_latest_rounds() -> None:
    ends = iter([0.0, 2.0, 4.0, 100.0, 103.0, 105.0, *(110.0 + 5 * at for at in range(PACE_OF))])
    telemetry = Telemetry(clock=lambda: next(ends))

    def after(rounds: int) -> float:
        for _ in range(rounds):
            adopted(telemetry, 1)
        return telemetry.round_s

    assert after(1) == 0.0
    assert after(2) == 2.0
    assert after(3) == 2.0  # 2, 2, 96, 3, 2
    assert after(PACE_OF) == 5.0


def test_accuracies_are_kept_until_they_are_measured_again() -> None:
    telemetry = Telemetry()
    telemetry.measure({"own": 0.5, "zero_shot_own": 0.4, "loss": 1.0}, 1)
    telemetry.measure({"own": 0.6, "loss": 0.9}, 2)
    telemetry.measure({"loss": 0.8}, 3)
    assert telemetry.measured_at == 2
    assert telemetry.measured == {"own": 0.6, "zero_shot_own": 0.4}


def test_figures_of_a_run_end_where_the_rounds_begin_again() -> None:
    telemetry = Telemetry()
    telemetry.count("b", "out", 10, 20)
    for number in (1, 2):
        adopted(telemetry, number, own=0.5, zero_shot_own=0.4)
    assert telemetry.measured == {"own": 0.5, "zero_shot_own": 0.4}
    assert telemetry.measured_at == 2
    adopted(telemetry, 0)
    assert telemetry.measured == {"zero_shot_own": 0.4}
    assert (telemetry.measured_at, telemetry.round_s) == (0, 0.0)
    assert telemetry.total.sent.messages == 1, "the traffic of the process counts on"


def test_old_events_make_room() -> None:
    telemetry = Telemetry()
    for number in range(TROUBLES + 5):
        telemetry.record(Record("kind", str(number), "error"))
    kept = list(telemetry.events.troubles)
    assert len(kept) == TROUBLES
    assert kept[0].record.text == "5"


@pytest.mark.parametrize("kind", sorted(ORDINARY))
@pytest.mark.parametrize("every", [1, 2, 4, 8])
def test_what_a_join_brings_is_a_warning_only_if_it_lasts(kind: str, every: int) -> None:
    telemetry = Telemetry()
    for number in range(1, 8 * every):
        adopted(telemetry, number)
        if number % every == 0:
            for _ in range(2):
                telemetry.record(Record(kind, "late", "warning"))
    levels = [logged.record.level for logged in telemetry.events.kept]
    if every == 8:  # three times in sixteen rounds
        assert set(levels) == {"info"}
    else:
        assert levels == ["info"] * 6 + ["warning"] * (len(levels) - 6)
    telemetry.record(Record("peer.dead", "gone", "warning"))
    assert list(telemetry.events.kept)[-1].record.level == "warning"


@pytest.mark.parametrize(("rounds", "warned"), [(1, False), (3, False), (4, True), (9, True)])
def test_another_state_is_a_warning_only_if_it_lasts(rounds: int, warned: bool) -> None:
    telemetry = Telemetry()
    adopted(telemetry, 5)
    telemetry.record(Record("state.differs", "another state", "warning"))
    for number in range(6, 6 + rounds):
        adopted(telemetry, number)
    telemetry.record(Record("state.agrees", "the same state again"))
    for number in range(6 + rounds, 20 + rounds):
        adopted(telemetry, number)
    levels = [logged.record.level for logged in telemetry.events.kept]
    assert levels == ["info", *(["warning"] if warned else []), "info"]
