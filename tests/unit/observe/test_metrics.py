"""The Prometheus endpoint's text, read by the client library's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from fednode.observe.metrics import OTHER, TYPES_MAX, Metrics
from fednode.wire.gen.status_pb2 import Peer, StatusReply

NAMES = {
    *("fednode_build_info", "fednode_round", "fednode_rounds", "fednode_round_duration_seconds"),
    *("fednode_train_duration_seconds", "fednode_messages", "fednode_message_bytes"),
    *("fednode_rejected_messages", "fednode_peers", "fednode_peer_rtt_seconds"),
    *("fednode_staleness_rounds", "fednode_accuracy_ratio", "fednode_loss"),
    *("fednode_last_exchange_timestamp_seconds", "fednode_checkpoint_write_seconds"),
}


def read(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return values by name of the sample and its labels."""
    text, kind = metrics.text()
    assert kind.startswith("text/plain")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_name_is_there_and_says_what_is() -> None:
    metrics = Metrics()
    metrics.watch(
        lambda: StatusReply(
            mesh="m",
            life="running",
            round=7,
            metrics={"loss": 0.5},
            measured={"own": 0.25},
            peers=[
                *(Peer(state="alive", round=number) for number in (7, 8, 9)),
                Peer(state="dead", round=12),
            ],
            refused={"norm": 4},
        )
    )
    families = {one.name for one in text_string_to_metric_families(metrics.text()[0].decode())}
    assert families >= NAMES
    found = read(metrics)
    assert found["fednode_round"] == {(): 7}
    assert found["fednode_staleness_rounds"] == {(): 2}
    assert found["fednode_accuracy_ratio"] == {(("split", "own"),): 0.25}
    assert found["fednode_peers"] == {(("state", "alive"),): 3, (("state", "dead"),): 1}
    assert found["fednode_rejected_messages_total"] == {(("reason", "norm"),): 4}
    assert found["fednode_life"][("state", "running"),] == 1
    assert sum(found["fednode_life"].values()) == 1
    ((labels, value),) = found["fednode_build_info"].items()
    assert value == 1
    assert dict(labels)["mesh"] == "m"


def test_messages_are_counted_by_direction_type_and_answer() -> None:
    metrics = Metrics()
    metrics.message("out", "prompts", "ok", 100)
    metrics.message("out", "prompts", "ok", 50)
    metrics.message("out", "prompts", "unreachable", 70)
    found = read(metrics)
    base = ("direction", "out"), ("result", "ok"), ("type", "prompts")
    assert found["fednode_messages_total"][base] == 2
    assert found["fednode_message_bytes_total"] == {(base[0], base[2]): 150}
    assert found["fednode_last_exchange_timestamp_seconds"][()] > 1e9


def test_types_that_peers_invent_are_bounded() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.message("in", f"made-up-{number}", "invalid", 1)
        metrics.message("in", f"taken-{number}", "ok", 1)
    labels = {dict(key)["type"] for key in read(metrics)["fednode_messages_total"]}
    assert OTHER in labels
    assert len(labels) <= TYPES_MAX + 1
    assert "made-up-0" not in labels


def test_rounds_and_seconds() -> None:
    metrics = Metrics()
    for seconds in (0.01, 0.02, 0.03):
        metrics.committed(seconds)
    metrics.train_seconds.observe(2.0)
    found = read(metrics)
    assert found["fednode_rounds_total"] == {(): 3}
    assert found["fednode_round_duration_seconds_count"] == {(): 2}  # between three
    assert found["fednode_checkpoint_write_seconds_count"] == {(): 3}
    assert abs(found["fednode_checkpoint_write_seconds_sum"][()] - 0.06) < 1e-9
    assert found["fednode_train_duration_seconds_sum"] == {(): 2.0}
