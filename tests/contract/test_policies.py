"""Every registered policy keeps the contract, in every mode and with its odd settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fednode import registry
from fednode.core.policy import PolicyKind
from fednode.core.rounds.averaging import AveragingConfig
from fednode.core.rounds.method import Contribution, MethodState, Round
from fednode.core.settings import GuardSettings, RoundSettings
from fednode.policies import plan as aggregator
from fednode.policies.diprompt import DiPrompT, DiPrompTConfig
from fednode.policies.feddpt import FedDPT, FedDPTConfig
from fednode.policies.gda import GDA, GDAConfig
from fednode.policies.local import Local, LocalConfig
from fednode.policies.plan import Plan, PlanConfig
from fednode.policies.promptfl import PromptFLConfig
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from tests.contract.player import up
from tests.contract.policy_suite import CONTEXT, Case, PolicyContract, Shapes
from tests.unit.policies.methods import AVERAGING as POLICIES
from tests.unit.policies.methods import PROMPTFL

NOTHING: Shapes = {}
ZERODFL = {"prompts": CONTEXT, "done": NOTHING}
SHARED = {"again": NOTHING, "want": NOTHING}
DOMAINS = ("art", "photo")
TEXT, VISUAL = {"text": (2, 3, 4)}, {"visual": (3, 3, 4)}


@dataclass(frozen=True)
class Kind:
    """A policy's arrays and phases, and the settings to try it with."""

    shapes: Shapes
    says: Mapping[str, Shapes]
    configs: Mapping[str, Any]


def averaging(**configs: AveragingConfig) -> Kind:
    return Kind(CONTEXT, {"prompts": CONTEXT, **SHARED}, configs)


def dpt(**set_: Any) -> Kind:
    """Return Fed-DPT, whose messages hold the arrays of a node of the domain "art"."""
    config = FedDPTConfig(domains=DOMAINS, **set_)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(config.text_names, (3, 2))
    shapes.update(dict.fromkeys(config.visual_names, (4,)))
    told = {name: shapes[name] for name in sorted(config.trained("art"))}
    return Kind(shapes, {"prompts": told, **SHARED}, {"": config})


def diprompt(**set_: Any) -> Kind:
    config = DiPrompTConfig(domains=DOMAINS, **set_)
    shapes = dict.fromkeys(config.names, (4, 2))
    return Kind(shapes, {"prompts": shapes, **SHARED}, {"": config})


def plan(**set_: Any) -> Kind:
    config = PlanConfig(reduction=2, **set_)
    towers, aggregators = {**TEXT, **VISUAL}, dict[str, tuple[int, ...]]()
    for name in config.aggregated:
        shapes = aggregator.aggregator_shapes(name, towers[name], config.reduction, config.tied)
        aggregators.update(shapes)
    says: dict[str, Shapes] = {"prompts": towers}
    if aggregators:
        says["aggregators"] = aggregators
    return Kind({**towers, **aggregators}, {**says, **SHARED}, {"": config})


def kinds() -> list[tuple[PolicyKind, str, Kind]]:
    zerodfl = {
        "push": ZeroDFLConfig(recipients=2),
        "push-all": ZeroDFLConfig(recipients=9, wire_dtype="float32"),
        "push-kept-reset": ZeroDFLConfig(recipients=2, positions="kept", optimizer="reset"),
        "push-one": ZeroDFLConfig(recipients=1),
        "push-nothing": ZeroDFLConfig(rows_shared=0),
    }
    sums: Shapes = {"rows": (0, 2)}
    made: list[tuple[PolicyKind, str, Kind]] = [
        (Local, "", Kind(CONTEXT, ZERODFL, {"": LocalConfig()})),
        (ZeroDFL, "", Kind(CONTEXT, ZERODFL, zerodfl)),
        (GDA, "", Kind(sums, {"statement": sums}, {"": GDAConfig()})),
        *(
            (kind, "", averaging(**{"": kind.config_type(), "equal": kind.config_type(
                weights="equal", optimizer="keep", wire_dtype="float16")}))
            for kind in POLICIES.values()
        ),
    ]  # fmt: skip
    variants: list[tuple[PolicyKind, Callable[..., Kind], list[dict[str, Any]]]] = [
        (
            FedDPT,
            dpt,
            [
                {},
                *({"components": one} for one in ("visual", "text", "agnostic")),
                *({"text": one} for one in ("replace", "train_all")),
                *({"visual": one} for one in ("split_ema", "split")),
                {"optimizer": "reset", "wire_dtype": "float16"},
            ],
        ),
        (
            DiPrompT,
            diprompt,
            [{}, {"momentum": False}, {"prompts": "global"}, {"prompts": "domains"}],
        ),
        (Plan, plan, [{}, {"aggregators": "text"}, {"aggregators": "none"}, {"tied": True}]),
    ]
    for kind, make, sets in variants:
        made += [(kind, "-".join(map(str, set_.values())), make(**set_)) for set_ in sets]
    return made


def guarded() -> list[tuple[PolicyKind, str, Kind]]:
    """Return policies whose nodes may use what they tuned in place of what was merged."""
    return [
        (PROMPTFL, "guarded", averaging(**{"": PromptFLConfig()})),
        (Plan, "guarded", plan()),
    ]


def some() -> list[tuple[PolicyKind, str, Kind]]:
    """Return policies of which two nodes take part in a round."""
    return [
        (PROMPTFL, "some", averaging(**{"": PromptFLConfig(participants=2)})),
        (FedDPT, "some", dpt(participants=2)),
        (DiPrompT, "some", diprompt(participants=2)),
        (Plan, "some", plan(participants=2)),
    ]


HOOKS = ("first", "job", "contribution", "merge", "complete", "message", "recipients", "mix")
NOT_DRAWN = frozenset({4, 5, 8, 9})
"""Of the first nine rounds, those in which the draw of two nodes leaves out node "a"."""


def cases(
    made: list[tuple[PolicyKind, str, Kind]], guard: GuardSettings, sits_out: frozenset[int]
) -> Iterator[Any]:
    """Yield the cases of policies; of equal hooks in a mode, all but the first as slow."""
    seen = set[tuple[Any, ...]]()
    for kind, title, told in made:
        hooks = [getattr(kind, name, None) for name in HOOKS]
        for (variant, config), mode in itertools.product(told.configs.items(), kind.modes):
            if not kind.settings_fault(config, RoundSettings(mode=mode, max=9), DOMAINS[1]):
                yield pytest.param(
                    Case(kind, config, mode, told.shapes, told.says, guard, sits_out),
                    id="-".join(filter(None, (kind.name, title, variant, mode))),
                    marks=[pytest.mark.slow] if (key := (mode, *hooks)) in seen else [],
                )
                seen.add(key)


CASES = [
    *cases(kinds(), GuardSettings(), frozenset()),
    *cases(guarded(), GuardSettings(merged_rise=0.0), frozenset()),
    *cases(some(), GuardSettings(), NOT_DRAWN),
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    found = request.param
    assert isinstance(found, Case)
    return found


class TestPolicies(PolicyContract):
    pass


@pytest.mark.parametrize("case", [one for one in CASES if one.id == "plan-sync"], indirect=True)
def test_the_rounds_of_the_contract_reach_the_merge_of_every_stage(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged: list[tuple[str, int]] = []

    def merge(method: Plan, now: Round, given: Sequence[Contribution]) -> MethodState:
        merged.append((now.stage, len(given)))
        return merge_of_plan(method, now, given)

    merge_of_plan = Plan.merge
    monkeypatch.setattr(Plan, "merge", merge)
    up(case.player()).run_stages(1, case)
    assert merged == [("prompts", 4), ("aggregators", 4)]


def test_every_registered_policy_is_here() -> None:
    assert {kind.name for kind, _, _ in kinds()} == set(registry.names())
