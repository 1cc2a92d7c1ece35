"""What the page and `fednode status` both say of a node."""

from __future__ import annotations

from fednode.core.view import figures
from fednode.observe import summary
from fednode.wire.gen.status_pb2 import Peer, Relay, StatusReply
from tests.unit.commands.canned import reply


def test_the_headline_says_what_a_node_does_and_how_long_it_still_takes() -> None:
    assert summary.headline(reply()) == (
        "round 12 of 150, tuning (step 3 of 8); no peer takes part: it goes on alone"
    )
    one = StatusReply(life="running", round=7, rounds_max=9, phase="idle", round_s=30.0)
    assert summary.headline(one) == "round 7 of 9, idle, about 1 min left"
    one.rounds_max, one.working = 0, "encoding images"
    assert summary.headline(one) == "round 7, idle; encoding images"
    one.life = "loading"
    assert summary.headline(one) == "encoding images"


def test_the_facts_name_rounds_and_accuracies_of_the_hand_written_prompt() -> None:
    made = reply(together="9 of 12 rounds merged what peers sent", measured_round=4)
    made.measured["zero_shot_own"], made.best_round, made.best_validation = 0.25, 3, 0.8
    shown = dict(summary.facts(made))
    assert shown == {
        "merged": "9 of 12 rounds merged what peers sent",
        "training": "loss 1.25",
        "own accuracy": "50.0 % (round 4, zero-shot 25.0 %)",
        "best": "round 3, validation 80.0 %",
        "images": "40 for training; class 0, class 1, class 2, class 3, class 4, class 5 and 3 "
        "more",
        "peers": "0/1 alive",
        "sent since the start": "7 messages, 2.0 MB (tensors 1.5 kB, on the wire about 0 B)",
        "messages not taken": "2 (norm)",
        "mesh": "clinic",
        "policy": "zerodfl",
        "model": "fednode-mini (0123456789ab)",
        "up": "3 min",
    }


def test_figures_stand_in_a_fixed_order() -> None:
    measured = {"zero_shot_own": 0.25, "other": 3.0, "own": 0.5, "loss": 1.25}
    assert figures(measured) == "loss 1.25, own 50.0 %, other 3, zero shot own 25.0 %"


def test_peers_that_left_or_were_removed_are_not_counted() -> None:
    states = ("alive", "dead", "left", "revoked", "alive")
    peers = [Peer(name=str(at), state=to) for at, to in enumerate(states)]
    assert summary.alive(StatusReply(peers=peers)) == "2/3"
    peers[0].path = "relay r:443"
    assert summary.alive(StatusReply(peers=peers)) == "2/3, 1 relayed"
    assert dict(summary.facts(StatusReply(peers=peers)))["peers"] == "2/3 alive, 1 relayed"


def test_paths_name_each_relay_and_the_peers_of_each_reason() -> None:
    lost = Relay(address="r:443", state="lost", why="nobody answers at r:443")
    way, why = "relay s:443", "its address is `relay`"
    made = StatusReply(
        relays=[lost, Relay(address="s:443", state="waiting")],
        peers=[
            Peer(name="b", path=way, path_why=why),
            Peer(name="c", path="direct"),
            Peer(name="d", path=way, path_why=why),
        ],
    )
    assert summary.paths(made) == [
        "relay r:443: lost (nobody answers at r:443)",
        "relay s:443: waiting",
        "relayed to b, d: its address is `relay`",
    ]
