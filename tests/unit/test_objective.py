"""What authors of objectives import is what the learner itself uses."""

from __future__ import annotations

from fednode import objective
from fednode.learn import objective as contract
from fednode.learn.context import ContextObjective
from fednode.learn.initial import context, generator


def test_names_are_the_learner_s_own() -> None:
    assert objective.Objective is contract.Objective
    assert objective.ContextObjective is ContextObjective
    assert (objective.context, objective.generator) == (context, generator)


def test_everything_that_the_contract_names_is_offered() -> None:
    public = {
        name
        for name, held in vars(contract).items()
        if getattr(held, "__module__", "") == contract.__name__ and name not in {"InTurns", "said"}
    }
    assert public <= set(objective.__all__)
    assert all(hasattr(objective, name) for name in objective.__all__)
