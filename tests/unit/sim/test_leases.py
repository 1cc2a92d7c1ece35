"""Whom a simulated node believes: anyone, or the holders of leases."""

from __future__ import annotations

from fednode.core.types import Update
from fednode.sim.leases import Anyone, Leases


def grown() -> Leases:
    made = Leases(lambda: 5.0)
    made.shown |= {name: (f"key-{name}", made.give("", name, f"key-{name}", 0.0)) for name in "ab"}
    return made


def alive(name: str, id: str, proof: bytes) -> Update:
    return Update(name, "alive", 0, name, id, proof)


def test_anyone_is_believed_and_tells_only_its_own_address() -> None:
    trust = Anyone({"a": 1, "b": 2})
    news = [Update("a", "alive", 0, "x"), Update("b", "alive", 0, "y"), Update("c", "alive")]
    assert trust.believed("b", "a", news) == (news[0], Update("b", "alive"))
    assert (trust.refusal("a", "b"), trust.named("c")) == ("", False)


def test_hosts_speak_if_both_show_leases_that_count() -> None:
    leases = grown()
    assert leases.refusal("a", "b") == ""
    assert leases.refusal("a", "c") == leases.refusal("c", "a") == "it shows no lease"
    proof = leases.end("", "a", "key-a")
    told = leases.believed("b", "x", [Update("a", "revoked", 0, "", "", proof)])
    assert told == (Update("a", "revoked", 0, "", "key-a", proof),)
    assert "the key key-a was revoked" in leases.refusal("a", "b")
    assert (leases.id_of("b", "a"), leases.id_of("a", "b")) == ("", "key-b")


def test_news_needs_what_its_signer_signed() -> None:
    leases = grown()
    given = leases.give("key-a", "c", "key-c")
    assert leases.believed("b", "a", [alive("c", "key-c", b"lease c key-c 5.0 ")]) == ()
    assert leases.believed("b", "a", [alive("d", "key-c", given)]) == ()
    assert leases.believed("b", "a", [alive("c", "key-evil", given)])[0].id == "key-c"
    assert leases.believed("b", "a", [Update("c", "revoked", 0, "", "key-c", given)]) == ()
    other = leases.end("key-b", "c", "key-c")
    assert leases.believed("b", "b", [Update("c", "revoked", 0, "", "key-c", other)]) == ()
    assert leases.id_of("b", "c") == "key-c", "b did not let it in"
    assert leases.named("c")
