"""Names of domains: which are taken, and what is said of the others."""

from __future__ import annotations

import pytest

from fednode.policies.domains import check, settings_fault, spoken


@pytest.mark.parametrize("names", [("photo",), ("art_painting", "sketch-2", "0"), ("a" * 40,)])
def test_small_letters_digits_and_dashes_are_fine(names: tuple[str, ...]) -> None:
    check(names, 1)


@pytest.mark.parametrize("name", ["Photo", "a b", "_x", "-x", "", "a" * 41, "é", "a\n"])
def test_other_names_are_refused_with_the_name(name: str) -> None:
    with pytest.raises(ValueError, match="use small letters"):
        check((name,), 1)


def test_a_name_stands_once_and_there_are_enough() -> None:
    with pytest.raises(ValueError, match="names 'photo' twice"):
        check(("photo", "art", "photo"), 1)
    with pytest.raises(ValueError, match=r"names 1 domains \(photo\); list all .* at least 2"):
        check(("photo",), 2)
    with pytest.raises(ValueError, match=r"names 0 domains \(none\)"):
        check((), 1)


def test_a_node_s_own_domain_is_one_of_the_mesh_s() -> None:
    assert settings_fault(("art", "photo"), "photo") == ""
    assert settings_fault(("art", "photo"), "foto").startswith("data.domain is 'foto'; say which")
    assert settings_fault(("art",), "") == (
        "data.domain is not set; say which of policy.domains its images are of: art."
    )


def test_a_domain_is_spoken_in_words() -> None:
    assert spoken("art_painting-2") == "art painting 2"
