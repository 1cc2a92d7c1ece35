"""A state directory that an earlier version wrote: its settings and what it is tied to.

`before/` holds, for each policy, the settings.yaml that the version before wrote with every key
set, and the facts to which it tied the directory (facts.json).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fednode import registry
from fednode.app.plan import NodePlan, facts_of, make, tie
from fednode.errors import StateError
from fednode.settings.faults import GONE
from fednode.settings.read import Settings, lasting, load_settings, read_yaml, settings_in
from fednode.storage.store import Store

BEFORE = Path(__file__).parent / "before"
FILES = sorted(BEFORE.glob("*.yaml"))
NEWER = {"gda"}
"""Policies that came after these files were written."""
PEERS = """\
mesh: m
insecure: true
peers:
  - {name: a, address: "127.0.0.1:7391"}
  - {name: b, address: "127.0.0.1:7392"}
"""


class NoLearner:
    backbone = schema = "none"


def flags_of(policy: str) -> tuple[str, ...]:
    """Return the flags with which the files were written."""
    needs = "domains" in registry.policy(policy).config_type.__dataclass_fields__
    domains = ("policy.domains=[photo, sketch]", "data.domain=photo") if needs else ()
    graph = ("topology={kind: k-regular, degree: 1}",) if policy == "zerodfl" else ()
    return (f"policy.name={policy}", *domains, *graph)


def planned(tmp_path: Path, policy: str, *more: str) -> NodePlan:
    peers = tmp_path / "peers.yaml"
    peers.write_text(PEERS)
    return make(peers, None, "a", (*flags_of(policy), *more), tmp_path / "state")


def test_the_files_hold_every_policy() -> None:
    assert [file.stem for file in FILES] == [one for one in registry.names() if one not in NEWER]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_settings_of_before_are_read_as_todays(file: Path) -> None:
    found = settings_in(lasting(read_yaml(file)), {})
    wanted = load_settings(
        None,
        {},
        (
            *flags_of(file.stem),
            "rounds.start.timeout_s=120",
            "name=a",
            f"state_dir={found.state_dir}",
        ),
    )
    assert found.policy.config == wanted.policy.config
    assert wanted.model.worded(wanted.tuning.template) == found.tuning.template
    wanted = replace(wanted, tuning=replace(wanted.tuning, template=found.tuning.template))
    for section in Settings.__dataclass_fields__:
        if section != "policy":  # it holds what was written, here every key
            assert getattr(found, section) == getattr(wanted, section)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_start_goes_on_from_a_directory_of_before(file: Path, tmp_path: Path) -> None:
    held = json.loads((BEFORE / "facts.json").read_text())[file.stem]
    plan = planned(tmp_path, file.stem)
    facts = facts_of(plan, NoLearner())  # type: ignore[arg-type]
    store = Store(plan.state)
    store.bind(held)
    tie(store, plan, facts)
    assert {key for key in held if key not in facts and key != "name"} <= GONE
    store.close()


def test_a_start_with_other_settings_than_before_is_refused(tmp_path: Path) -> None:
    held = json.loads((BEFORE / "facts.json").read_text())
    for policy, flag, key in (
        ("promptfl", "policy.merge.rule=krum", "policy.merge"),
        ("fedotp", "policy.epsilon=0.2", "policy.epsilon"),
        ("zerodfl", "policy.recipients=1", "policy.recipients"),
    ):
        folder = tmp_path / policy
        folder.mkdir()
        plan = planned(folder, policy, flag)
        store = Store(plan.state)
        store.bind(held[policy])
        with pytest.raises(StateError, match=f"was made with {key} "):
            tie(store, plan, facts_of(plan, NoLearner()))  # type: ignore[arg-type]
        store.close()
