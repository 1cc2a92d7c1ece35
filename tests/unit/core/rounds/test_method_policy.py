"""A method as a policy: it says what its method says, and a run begins and goes on from a state."""

from __future__ import annotations

from fednode.core.rounds.method_policy import MethodPolicy
from fednode.core.settings import RoundSettings
from fednode.core.types import EMPTY, PolicyState, Tensors
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.policies.promptfl import PromptFLConfig
from fednode.testing import frame
from tests.unit.policies.methods import PROMPTFL

KIND = MethodPolicy(DiPrompT)
CONFIG = DiPrompTConfig(domains=("art",))
START = Tensors({"domain.art": [[1.0, 2.0]]})
NODE = frame("diprompt", rounds=RoundSettings(mode="sync", max=9))


def test_it_says_what_its_method_says() -> None:
    assert (KIND.name, KIND.config_type, KIND.tuning) == (
        "diprompt",
        DiPrompTConfig,
        DiPrompT.tuning,
    )
    assert (KIND.default_mode, KIND.modes, KIND.shared_state) == ("sync", ("sync",), True)
    fault = KIND.settings_fault(CONFIG, RoundSettings(max=0), "")
    assert fault == DiPrompT.settings_fault(CONFIG, RoundSettings(max=0), "")
    assert "rounds.max is 0" in fault


def test_it_works_in_sync_alone() -> None:
    assert KIND.settings_fault(CONFIG, RoundSettings("sync", 9), "") == ""
    fault = KIND.settings_fault(CONFIG, RoundSettings("async", 9), "")
    assert fault.startswith("rounds.mode is 'async'; policy diprompt works with sync alone")


def test_a_run_begins_at_round_0_with_the_method_s_first_state() -> None:
    state = KIND.start(CONFIG, NODE, START).state()
    first = DiPrompT(CONFIG, NODE).first(START)
    assert (state.round, state.tensors, state.arrays) == (0, first.shared, first.arrays)
    assert state.tuned == EMPTY


def test_a_restored_run_goes_on_from_its_state() -> None:
    before = KIND.start(CONFIG, NODE, START).state()
    later = PolicyState(4, before.tensors, before.tensors, arrays=before.arrays)
    assert KIND.restore(CONFIG, NODE, later).state().round == 4


def test_the_paper_s_bytes_count_the_nodes_that_take_part() -> None:
    kind, shapes = PROMPTFL, {"context": (4, 2)}
    every = kind.paper_bytes(PromptFLConfig(), shapes, 10, 6)
    drawn = kind.paper_bytes(PromptFLConfig(participants=2), shapes, 10, 6)
    many = kind.paper_bytes(PromptFLConfig(participants=9), shapes, 10, 6)
    assert every is not None
    assert drawn is not None
    assert every == 10 * 6 * 2 * 8 * 4  # up and down, in float32
    assert drawn * 3 == every == many
