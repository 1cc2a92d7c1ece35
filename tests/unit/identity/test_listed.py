"""Trust without keys: listed names are believed, and nothing is revoked."""

from __future__ import annotations

from typing import Any

import pytest

from fednode.core.types import Update
from fednode.errors import IdentityError
from fednode.identity.listed import Listed


def news(name: str, state: Any = "alive", **more: Any) -> Update:
    return Update(name, state, 1, **more)


def test_without_keys_listed_names_are_believed_and_lead_nowhere_else() -> None:
    believes = Listed(frozenset({"a", "b"}))
    assert believes.refusal("", "zoe") == ""
    told = [
        news("a", address="127.0.0.1:5"),
        news("b", address="127.0.0.1:6"),
        news("z"),
        news("b", "revoked"),
    ]
    kept = believes.believed("a", told)
    assert [(one.name, one.address) for one in kept] == [("a", "127.0.0.1:5"), ("b", "")]
    (moved,) = believes.believed("a", [news("a", address="192.0.2.1:5")])
    assert moved.address == ""
    with pytest.raises(IdentityError, match="insecure"):
        believes.take_revocation(b"")
