"""What a state directory is tied to, and what a later start may change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fednode.app.plan import free_facts, make
from fednode.commands import start
from fednode.learn import build
from fednode.learn.closed_form import ClosedFormLearner
from fednode.policies.zerodfl.config import ZeroDFLConfig
from fednode.runtime.driver import Driver
from fednode.settings.faults import GONE
from fednode.storage.store import Store
from tests.unit.commands.run import PEERS

DOMAINS = ("policy.domains=[photo, sketch]", "data.domain=photo")
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("policy.name=zerodfl",), {"rounds.max"}),
        (("policy.name=promptfl",), {"rounds.max"}),
        (("policy.name=diprompt", *DOMAINS), NONE),
        (("policy.name=diprompt", "policy.momentum=false", *DOMAINS), {"rounds.max"}),
        (("policy.name=trip",), NONE),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_more_rounds_may_follow_unless_averages_weigh_rounds_by_their_number(
    tmp_path: Path, flags: tuple[str, ...], wanted: frozenset[str]
) -> None:
    peers = tmp_path / "peers.yaml"
    peers.write_text(PEERS)
    plan = make(peers, None, "a", ("rounds.max=9", *flags), tmp_path / "state")
    assert free_facts(plan) == wanted | GONE


async def test_a_start_parses_the_policys_settings_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the files to the running driver: every part is handed what was parsed first."""
    peers, parsed = tmp_path / "peers.yaml", list[ZeroDFLConfig]()
    peers.write_text(PEERS)
    check = ZeroDFLConfig.__post_init__
    given = list[object]()

    def parses(config: ZeroDFLConfig) -> None:
        check(config)
        parsed.append(config)

    def learner(*parts: object) -> ClosedFormLearner:
        given.extend(parts)
        return ClosedFormLearner("a", rows=4)

    async def ends(driver: Driver) -> None:
        given.append(driver)

    monkeypatch.setattr(ZeroDFLConfig, "__post_init__", parses)
    monkeypatch.setattr(build, "build", learner)  # loading images and a model takes seconds
    monkeypatch.setattr(Driver, "run", ends)
    flags = ("policy.recipients=2", f"cache.folder={tmp_path / 'cache'}", "page.listen=null")
    plan = make(peers, None, "a", flags, tmp_path / "state")
    quiet = replace(plan, peers=replace(plan.peers, peers=plan.peers.peers[:1]))
    await start._run(quiet, Store(plan.state))
    assert isinstance(given[-1], Driver)
    assert parsed[0] in given
    assert len(parsed) == 1
