"""A link that needs an approval: its key knocks, and is admitted or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fednode.admission import link as links
from fednode.admission.tokens import Knocked, StolenLink
from fednode.admission.words import words_of
from fednode.app.admission import register_of
from fednode.commands import requests
from fednode.errors import IdentityError
from fednode.identity import keys
from tests.unit.app.founders import MESH, founded, identity_of
from tests.unit.commands.run import Fednode
from tests.unit.identity.people import LISTED

AWAY = "127.0.0.1:9"


def test_a_site_knocks_and_is_admitted_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, fednode = founded(tmp_path, monkeypatch), Fednode(capsys)
    register = register_of(plan.state, identity_of(plan))
    assert requests.requests.name == "requests"
    assert fednode("requests") == 0
    assert fednode.out == "No site waits.\n"
    for good in (False, True):
        assert fednode("invite", "b", "--approve") == 0
        assert "after `fednode requests admit b` the same `fednode join` joins" in fednode.err
        token = links.read(fednode.out).token.hex()
        asked = (LISTED["b"], MESH, "b", AWAY, token)
        assert register.enrol(*asked, dry=True) == b"", "a question is no knock"
        for _ in range(2):
            with pytest.raises(Knocked, match="the operator has to approve the key of 'b' first"):
                register.enrol(*asked)
        with pytest.raises(StolenLink, match="another key knocked with the link for 'b' before"):
            register.enrol(LISTED["a"] if not good else keys.grouped(bytes(32)), *asked[1:])
        assert "No site waits as 'bb'; did you mean 'b'?" in fednode.fault(
            "requests", "admit", "bb"
        )
        assert fednode("requests") == 0
        assert fednode.out == f"b at {AWAY}: {words_of(keys.read_group(LISTED['b']))}\n"
        if good:
            assert fednode("requests", "admit", "b") == 0
            with pytest.raises(StolenLink, match="another key knocked"):
                register.enrol(keys.grouped(bytes(32)), *asked[1:])
            assert register.enrol(*asked)
        else:
            assert fednode("requests", "refuse", "b") == 0
            with pytest.raises(IdentityError, match="the link for 'b' was ended by its sender"):
                register.enrol(*asked)
    assert "No site waits as 'b'; waiting: none." in fednode.fault("requests", "admit", "b")
    token = register.tokens.for_link("c", 7, approve=True).hex()
    with pytest.raises(Knocked):
        register.enrol(LISTED["a"], MESH, "c", AWAY, token)
    token = register.tokens.for_link(
        "c", 7
    ).hex()  # a new link forgets who knocked with the old one
    assert register.tokens.requests() == []
    assert register.enrol(keys.grouped(bytes(32)), MESH, "c", AWAY, token)
