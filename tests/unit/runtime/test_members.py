"""A mesh without keys: which news of members is believed."""

from __future__ import annotations

import pytest

from fednode.core.types import MemberUpdate
from fednode.errors import IdentityError
from fednode.runtime.members import Listed


def test_names_are_believed_and_addresses_on_loopback_from_their_node() -> None:
    listed = Listed(frozenset("ab"))
    told = [MemberUpdate("b", "alive", 3, "127.0.0.1:7001", "id", b"p"), MemberUpdate("x", "alive")]
    assert listed.filter_gossip("b", told) == (MemberUpdate("b", "alive", 3, "127.0.0.1:7001"),)
    assert listed.filter_gossip("a", told) == (MemberUpdate("b", "alive", 3),)
    far = [MemberUpdate("b", "alive", 3, "10.0.0.1:7001")]
    assert listed.filter_gossip("b", far) == (MemberUpdate("b", "alive", 3),)
    assert listed.filter_gossip("b", [MemberUpdate("b", "revoked", proof=b"p")]) == ()
    with pytest.raises(IdentityError, match="knows nobody by keys"):
        listed.take_revocation(b"p")
