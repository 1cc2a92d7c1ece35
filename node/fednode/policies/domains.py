"""Domains: names that all nodes of a mesh agree on, in one order (photo, sketch, ...)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", re.ASCII)


def check(domains: Sequence[str]) -> None:
    """Raise ValueError if `policy.domains` has no name, or an invalid or repeated name."""
    if not domains:
        raise ValueError(
            "policy.domains names 0 domains; list all domains of the mesh, alike at every node."
        )
    for name in domains:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"policy.domains names {name!r}; use small letters, digits, '_' and '-', at most "
                "40, a letter or digit first."
            )
        if list(domains).count(name) > 1:
            raise ValueError(f"policy.domains names {name!r} twice.")


def settings_fault(domains: Sequence[str], domain: str) -> str:
    """Return what is wrong with a node's own domain; "" if it is one of the mesh's."""
    if domain in domains:
        return ""
    what = f"data.domain is {domain!r}" if domain else "data.domain is not set"
    return f"{what}; say which of policy.domains its images are of: {', '.join(domains)}."


def spoken(domain: str) -> str:
    """Return a domain as words in a text: "art painting" for art_painting."""
    return domain.replace("_", " ").replace("-", " ")
