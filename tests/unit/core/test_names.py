"""Which key keeps a name: the same one at all nodes, in whatever order they hear of it."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from fednode.core.names import KNOWN_MAX, SPONSORS_MAX, WITHDRAWN_MAX, Claim, Names

NOW = 50.0


def claim(name: str = "lab", id: str = "x", issued: float = 10, by: str = "") -> Claim:
    digest = f"{name}{id}{issued}{by}"
    return Claim(name=name, id=id, issued=issued, begins=issued, ends=90, by=by, digest=digest)


def holder(names: Names, name: str = "lab", now: float = NOW) -> str:
    counts = names.claim(name, now)
    return counts.id if counts is not None else ""


def test_a_claim_holds_between_its_times_only() -> None:
    names = Names()
    assert names.take(claim(), NOW) == ""
    assert [holder(names, now=now) for now in (9, 10, 90, 91)] == ["", "x", "x", ""]
    assert (names.name_of("x", NOW), names.name_of("y", NOW), names.name_of("x", 91)) == (
        "lab",
        "",
        "",
    )


def test_all_nodes_keep_the_same_of_two_keys_of_a_name() -> None:
    rivals = [claim(id="x", issued=20), claim(id="y", issued=20, by="s"), claim(id="z", issued=19)]
    for order in permutations(rivals):
        names = Names()
        told = {one.id: names.take(one, NOW) for one in order}
        assert (holder(names), names.name_of("y", NOW), names.name_of("x", NOW)) == ("y", "lab", "")
        assert told[order[-1].id] == ("" if order[-1].id == "y" else told[order[-1].id])
    assert "a newer lease of its name" in names.take(rivals[0], NOW)


def test_a_name_is_with_its_first_key_again_after_a_lying_sponsor_is_revoked() -> None:
    names, stays = Names(), claim("b", "x", 20, "s")
    names.take(claim("c", "y", 20, "s"), NOW)
    names.revoke("s", frozenset({stays.digest}))
    assert names.take(stays, NOW) == ""
    for late in (claim("d", "z", 11, "s"), claim("b", "x", 11, "s"), claim("c", "y", 20, "s")):
        assert "the key of its sponsor s was revoked" in names.take(late, NOW)
    assert [holder(names, name) for name in "bcd"] == ["x", "", ""]
    names.revoke("x")
    assert holder(names, "b") == ""
    assert "the key x was revoked" in names.take(stays, NOW)


def test_a_sponsor_withdraws_what_it_gave_and_nothing_else() -> None:
    names = Names()
    for one in (claim("b", "x", 20, "s"), claim("c", "y", 20), claim("d", "z", 20, "t")):
        names.take(one, NOW)
    assert all(names.withdraw("s", id) for id in "xyz")
    assert [holder(names, name) for name in "bcd"] == ["", "y", "z"]
    assert "its sponsor s revoked the lease" in names.take(claim("b", "x", 40, "s"), NOW)
    assert names.take(claim("b", "x", 40, "t"), NOW) == "", "another sponsor may know better"
    assert not names.withdraw("s", "x")
    assert names.is_withdrawn("x")
    assert not names.is_withdrawn("q")
    assert not names.is_revoked("x")


def test_a_name_whose_key_was_revoked_is_free_for_an_older_claim() -> None:
    names = Names()
    names.take(claim(id="x", issued=20), NOW)
    names.revoke("x")
    assert names.take(claim(id="y", issued=19), NOW) == ""
    assert holder(names) == "y"


def test_names_sponsors_and_withdrawals_are_limited() -> None:
    names = Names()
    for at in range(SPONSORS_MAX + 1):
        names.take(claim(id=f"{at}", issued=at, by=f"s{at}"), NOW)
    assert holder(names) == str(SPONSORS_MAX - 1)
    for at in range(KNOWN_MAX):
        names.take(claim(f"n{at}"), NOW)
    assert (holder(names, f"n{KNOWN_MAX - 2}"), holder(names, f"n{KNOWN_MAX - 1}")) == ("x", "")
    taken = [names.withdraw("s", f"{at}") for at in range(WITHDRAWN_MAX + 1)]
    assert taken == [True] * WITHDRAWN_MAX + [False]


WORDS = st.sampled_from(["p", "q", "r"])
CLAIMS = st.builds(claim, WORDS, WORDS, st.integers(1, 4), st.sampled_from(["", "s", "t"]))
SAID = st.lists(st.one_of(CLAIMS, st.sampled_from(["s", "t"])), max_size=6, unique=True)


@given(SAID.flatmap(lambda said: st.lists(st.permutations(said), min_size=2, max_size=3)))
def test_the_order_of_claims_and_revoked_sponsors_does_not_matter(
    orders: list[list[Claim | str]],
) -> None:
    outcomes = set()
    for order in orders:
        names = Names()
        for word in order:
            if isinstance(word, Claim):
                names.take(word, NOW)
            else:
                names.revoke(word)
        outcomes.add(tuple(holder(names, name) for name in "pqr"))
    assert len(outcomes) == 1
