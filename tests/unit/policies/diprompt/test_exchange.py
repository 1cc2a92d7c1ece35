"""DiPrompT's exchange: whose changes are merged, the moving averages, and what a message holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fednode.core.rounds.method import Contribution, Round
from fednode.core.settings import RoundSettings
from fednode.core.types import Report, Tensors
from fednode.policies.diprompt import AVERAGE, DiPrompT, DiPrompTConfig, alpha
from fednode.testing import frame

DOMAINS = ("photo", "art_painting")


def node(rounds: int = 10, **set_: Any) -> DiPrompT:
    config = DiPrompTConfig(domains=DOMAINS, **set_)
    return DiPrompT(config, frame("diprompt", rounds=RoundSettings(mode="sync", max=rounds)))


def first(policy: DiPrompT) -> Round:
    held = policy.first(Tensors({name: [[1.0, 2.0]] for name in policy.config.names}))
    return Round(1, "prompts", held, held)


def said(sender: str, samples: int, **changes: float) -> Contribution:
    names = {"common": "global", "photo": "domain.photo", "art": "domain.art_painting"}
    tensors = Tensors({names[key]: [[value, 0.0]] for key, value in changes.items()})
    return Contribution(sender, tensors, samples)


def test_changes_are_merged_by_who_changed_what() -> None:
    """Equation 4: weights are of those that changed a prompt; nobody leaves it as it is."""
    policy = node(momentum=False)
    heard = [said("a", 10, common=1.0, photo=3.0), said("b", 30, common=2.0), said("c", 99)]
    merged = policy.merge(first(policy), heard).shared
    assert merged["global"][0].tolist() == [1.0 + (10 * 1 + 30 * 2) / 40, 2.0]
    assert merged["domain.photo"][0].tolist() == [4.0, 2.0]
    assert merged["domain.art_painting"][0].tolist() == [1.0, 2.0]
    heard = [said("a", 10, common=1.0), said("b", 10**9, common=2.0), said("c", 10, common=1.0)]
    bounded = policy.merge(first(policy), heard).shared  # b weighs ten times the median
    wanted = 1.0 + (10 * 1 + 100 * 2 + 10 * 1) / 120
    assert float(bounded["global"][0, 0]) == pytest.approx(wanted, abs=1e-6)


def test_domain_prompts_are_averaged_over_rounds() -> None:
    """Equation 5 over three rounds; a round in which nobody changed a prompt does not count."""
    policy = node(rounds=5)
    raw = average = 1.0
    weight, now = alpha(0, 5, 0.2), first(policy)
    for number, change in ((1, 0.5), (2, None), (3, -2.0)):
        heard = [said("a", 10, photo=change)] if change is not None else [said("a", 10)]
        held = policy.merge(replace(now, number=number), heard)
        now = replace(now, held=held, draft=held)
        if change is not None:
            raw += change
            step = alpha(number, 5, 0.2)
            average = (weight * average + step * raw) / (weight + step)
            weight += step
        assert now.held.shared["domain.photo"][0, 0] == pytest.approx(average, rel=1e-6)
        assert now.held.arrays["raw/domain.photo"][0, 0] == pytest.approx(raw)
    assert abs(raw - average) > 0.1


def test_the_server_may_keep_what_it_sends_instead() -> None:
    """The other reading of equations 4 and 5: V is the average plus the change; nothing is kept."""
    policy = node(rounds=5, adds_to="sent")
    average = 1.0
    weight, now = alpha(0, 5, 0.2), first(policy)
    assert set(now.held.arrays) == {"sum/domain.photo", "sum/domain.art_painting"}
    for number, change in ((1, 0.5), (2, -2.0), (3, 4.0)):
        held = policy.merge(replace(now, number=number), [said("a", 10, photo=change)])
        now = replace(now, held=held, draft=held)
        step = alpha(number, 5, 0.2)
        average += step / (weight + step) * change
        weight += step
        assert now.held.shared["domain.photo"][0, 0] == pytest.approx(average, rel=1e-6)
    assert set(now.held.arrays) == {"sum/domain.photo", "sum/domain.art_painting"}


@pytest.mark.parametrize("optimizer", ["reset", "keep"])
def test_moments_of_replaced_prompts_start_anew(optimizer: str) -> None:
    """Those of Q, and of a prompt that no node changed, go on."""
    policy = node(optimizer=optimizer)
    names = ("global", "domain.photo", "domain.art_painting", "query")
    carry = Tensors({f"{name}/exp_avg": [1.0] for name in names})
    carry = Tensors({**carry, "private/query": [2.0], AVERAGE: [3.0]})
    now = first(policy)
    now = replace(now, draft=replace(now.draft, carry=carry))
    merged = policy.merge(now, [said("b", 10, common=1.0, photo=1.0)])
    gone = {"global/exp_avg", "domain.photo/exp_avg"} if optimizer == "reset" else set()
    assert set(carry) - set(merged.carry) == gone


def test_its_paper_counts_uploads_alone() -> None:
    """Figure 5: 4 prompts of 4 x 512 float32 numbers, 5 clients a round, 100 rounds."""
    shapes = dict.fromkeys(("global", "domain.a", "domain.b", "domain.c"), (4, 512))
    assert DiPrompT.paper_bytes(DiPrompTConfig(domains=DOMAINS), shapes, 100, 5) == (
        100 * 5 * 4 * 4 * 512 * 4
    )


def test_a_message_holds_only_what_training_moved() -> None:
    policy = node()
    now = first(policy)
    tuned = Tensors({name: [[1.5, 2.0]] for name in now.held.shared})
    told = policy.contribution(
        now, Report(tensors=tuned, metrics={}, samples=8, changed=("global",))
    )
    assert {name: one.tolist() for name, one in told.tensors.items()} == {"global": [[0.5, 0.0]]}
    assert told.draft == now.draft


def test_runs_without_an_end_are_a_sentence() -> None:
    config = DiPrompTConfig(domains=DOMAINS)
    assert "rounds.max is 0" in DiPrompT.settings_fault(config, RoundSettings(max=0), "")
    assert DiPrompT.settings_fault(config, RoundSettings(max=3), "") == ""
    labels = DiPrompTConfig(domains=DOMAINS, query="labels")
    assert "data.domain is not set" in DiPrompT.settings_fault(labels, RoundSettings(max=3), "")


def test_a_domain_whose_name_begins_with_another_s_keeps_its_moments() -> None:
    policy = DiPrompT(
        DiPrompTConfig(domains=("real", "real2"), optimizer="reset"),
        frame("diprompt", rounds=RoundSettings(mode="sync", max=9)),
    )
    now = first(policy)
    carry = Tensors({"domain.real/exp_avg": [1.0], "domain.real2/exp_avg": [1.0]})
    now = replace(now, draft=replace(now.draft, carry=carry))
    change = Contribution("b", Tensors({"domain.real": [[1.0, 0.0]]}), 10)
    assert set(policy.merge(now, [change]).carry) == {"domain.real2/exp_avg"}
