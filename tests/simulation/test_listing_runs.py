"""Meshes whose peers.yaml change while they run: listing.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fednode.core.members.own import Own
from fednode.core.members.places import Places
from fednode.core.members.table import Members
from fednode.core.types import Update
from fednode.lab.commands.simulate import load
from fednode.lab.simulate.listing import BACK, MOVES, NEW, REMOVALS, RESTARTS
from fednode.lab.simulate.scenario import draw, play
from fednode.sim.listed import Files
from fednode.testing.seeds import seeds

FILE = Path(__file__).resolve().parents[2] / "configs" / "sim" / "listing.yaml"
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_mesh_whose_lists_change_ends_well_whatever_fails(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


@pytest.mark.parametrize("seed", [9, 600219, 640009, 661440, 661546])
def test_seeds_that_were_broken_once_are_whole(seed: int) -> None:
    scenario, configs = load(FILE)
    assert play(scenario, draw(scenario, configs, seed)).violation is None


def test_seeds_draw_every_change_with_and_without_keys_and_members_that_are_off() -> None:
    scenario, configs = load(FILE)
    drawn = [one for seed in range(60) if (one := draw(scenario, configs, seed).listing)]
    kinds = {change.kind for listing in drawn for change in listing.changes}
    assert kinds == {NEW, BACK, MOVES, RESTARTS, *REMOVALS}
    assert {listing.keys for listing in drawn} == {listing.remote for listing in drawn}
    assert {len(listing.absent) for listing in drawn} == {0, 1}


def the_gone_are_members_still(patch: Patch) -> None:
    """The table keeps the state of a peer that is no longer listed."""
    patch.setattr(Members, "unlist", lambda self, name, now, reason: self.listed.discard(name))


def round_one_waits_for_the_gone(patch: Patch) -> None:
    """Who was listed once is waited for, on other machines without end."""
    unlist = Members.unlist

    def still_listed(self: Members, name: str, now: float, reason: str) -> None:
        unlist(self, name, now, reason)
        self.listed.add(name)

    patch.setattr(Members, "unlist", still_listed)


def the_file_wins_for_ever(patch: Patch) -> None:
    """The address of the file is called, whatever the peer said and whether it answers or not."""
    patch.setattr(Places, "failed", lambda self, name: [])


def the_first_word_of_a_peer_counts(patch: Patch) -> None:
    """A peer that moved is not believed: the table keeps the address that it told first."""
    place = Members.place

    def placed(self: Members, news: Update, sender: str) -> bool:
        held = self[news.name].address
        return place(self, replace(news, address=held or news.address), sender)

    patch.setattr(Members, "place", placed)


def a_node_tells_the_address_of_its_start(patch: Patch) -> None:
    """After a move its words have a newer incarnation, and put back the old address."""

    def move(self: Own, address: str, peers: Iterable[str]) -> None:
        self.incarnation += 1

    patch.setattr(Own, "move", move)


def the_host_believes_the_file_of_its_start(patch: Patch) -> None:
    """A node takes messages of those that its file lists no more."""
    patch.setattr(Files, "refusal", lambda self, sender, to: "")
    patch.setattr(Files, "connects", lambda self, sender, to: True)


BUGS: dict[Callable[[Patch], None], tuple[int, str]] = {
    the_gone_are_members_still: (1, "GoneStayOut"),
    round_one_waits_for_the_gone: (13, "AllEndsWell"),
    the_file_wins_for_ever: (33, "ListedAreSeen"),
    the_first_word_of_a_peer_counts: (1, "ListedAreSeen"),
    a_node_tells_the_address_of_its_start: (4, "ListedAreSeen"),
    the_host_believes_the_file_of_its_start: (1, "GoneStayOut"),
}
"""A seed that shows each bug, and the checker that finds it."""
QUICK = {the_gone_are_members_still, round_one_waits_for_the_gone, the_file_wins_for_ever}


@pytest.mark.parametrize(
    "plant",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in BUGS],
    ids=[one.__name__ for one in BUGS],
)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    scenario, configs = load(FILE)
    seed, checker = BUGS[plant]
    case = draw(scenario, configs, seed)
    with monkeypatch.context() as planted:
        plant(planted)
        broken = play(scenario, case).violation
    assert broken is not None
    assert broken.checker == checker
    assert play(scenario, case).violation is None
