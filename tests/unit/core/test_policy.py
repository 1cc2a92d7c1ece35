"""What a policy knows of its node: seeds, the stamp on its messages, the largest norm."""

from __future__ import annotations

import hashlib

import pytest

from fednode.core.policy import draw_seed, start_seed
from fednode.core.types import EMPTY, Message, Tensors
from fednode.testing import frame


def test_a_seed_is_the_first_63_bits_of_a_hash_of_what_it_is_for() -> None:
    text = b"7\x00a\x003\x00recipients"
    whole = int(hashlib.sha256(text).hexdigest()[:16], 16)
    assert draw_seed(7, "a", 3, "recipients") == whole // 2
    assert frame("local", seed=7).draw_seed(3, "recipients") == whole // 2


@pytest.mark.parametrize(
    "other", [(8, "a", 3, "x"), (7, "b", 3, "x"), (7, "a", 4, "x"), (7, "a", 3, "y")]
)
def test_seeds_differ_by_run_node_round_and_purpose(other: tuple[int, str, int, str]) -> None:
    assert draw_seed(*other) != draw_seed(7, "a", 3, "x")


def test_a_common_start_is_the_run_s_and_an_own_start_the_node_s() -> None:
    assert start_seed("common", 7, "a") == start_seed("common", 7, "b") == 7
    assert start_seed("own", 7, "a") == draw_seed(7, "a", 0, "start")
    assert frame("local", seed=7, start="own").start_seed == draw_seed(7, "a", 0, "start")


def test_each_draw_has_a_generator_of_its_own() -> None:
    node = frame("local")
    assert node.random(1, "x").random() == node.random(1, "x").random()
    assert node.random(1, "x").random() != node.random(2, "x").random()


def test_a_message_is_stamped_with_mesh_settings_policy_sender_and_images() -> None:
    node = frame("local", samples=12)
    assert node.message(3, "hello") == Message(
        mesh="m", fingerprint="f", policy="local", sender="a", round=3, phase="hello",
        tensors=EMPTY, samples=12, facts={},
    )  # fmt: skip


def test_prompts_longer_than_the_limit_are_a_fault_with_both_figures() -> None:
    node = frame("local", norm_max=5.0)
    assert node.norm_fault(Tensors({"x": [3.0, 4.0]})) == ""
    assert node.norm_fault(Tensors({"x": [6.0, 8.0]})) == "norm is 10; at most 5 is taken"
