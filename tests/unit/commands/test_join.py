"""`fednode join`: what is shown and asked before anything is done, and links that are not good."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.app.assemble import LEDGER_S, every
from fednode.app.plan import NodePlan
from fednode.commands import join
from fednode.enrolment.invitation import Invitation, encode
from fednode.enrolment.words import words_of
from fednode.identity import keys
from fednode.identity.certificates import Revocation
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Roster
from fednode.settings.peers import load_peers
from fednode.settings.read import load_settings
from tests.unit.app.founders import (
    MESH,
    admits,
    founded,
    images,
    ledger_of,
    link_to,
    mesh_key_of,
)
from tests.unit.commands.run import Fednode

AWAY = "127.0.0.1:9"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlan:
    return founded(tmp_path, monkeypatch)


@pytest.fixture
def fednode(
    tmp_path: Path, plan: NodePlan, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Fednode:  # fmt: skip
    """Return the command on another machine than the founder's."""
    images(tmp_path / "images")
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path / "site")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(join, "_check", lambda folder: None)  # it asks a node with a kernel
    return Fednode(capsys)


@contextlib.contextmanager
def admitting(plan: NodePlan) -> Iterator[None]:
    """Run the founder's node in a thread of its own, because the command runs a loop, too."""
    loop, up, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with admits(plan) as mesh:
            assert mesh.sponsor is not None
            looking = asyncio.create_task(every(LEDGER_S, mesh.sponsor.look))
            up.set()
            await stop.wait()
            looking.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert up.wait(20.0)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20.0)
        loop.close()


def words(link: Invitation | str, tmp_path: Path, *more: str) -> tuple[str, ...]:
    text = link if isinstance(link, str) else encode(link)
    data = ("--data", str(tmp_path / "images"), "--address", AWAY)
    return ("join", text, *data, *more)


def agreed(plan: NodePlan) -> tuple[str, str, str]:
    return ("--yes", "--words", words_of(str(plan.peers.mesh_key)))


def test_the_address_of_the_sponsor_is_refused_before_the_link_is_used(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    twice = ("--address", plan.address)
    said = fednode.fault(*words(link_to(plan, "b"), tmp_path, *twice), *agreed(plan))
    assert f"{plan.address} is the address of a, which made the link: give another port, " in said
    assert "such as --address 127.0.0.1:7101." in said


def test_a_site_joins_and_its_files_say_what_the_mesh_says(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    link = link_to(plan, "b")
    with admitting(plan):
        assert fednode(*words(link, tmp_path, "--no-start"), *agreed(plan)) == 0, fednode.err
    assert "members        a\n" in fednode.out
    assert "method         promptfl; 3 rounds" in fednode.out
    assert "numbers a round, 1 class name and the number of images to train on (32)" in fednode.out
    assert "class names told (if they are not to be: --set data.tell_classes=false)" in fednode.out
    assert "Start the node: cd ward && fednode start" in fednode.out
    settings = load_settings(Path("ward/node.yaml"), {})
    assert (settings.name, settings.policy.name, settings.rounds.max) == ("b", "promptfl", 3)
    assert settings.data.path == str(tmp_path / "images")
    peers = load_peers(Path("ward/peers.yaml"))
    assert [(one.name, one.address) for one in peers.peers] == [("a", plan.address), ("b", AWAY)]
    state = plan.state.parent / "b"
    assert NodeIdentity(state).name == "b"
    assert "There is a" in fednode.fault(*words(link, tmp_path), *agreed(plan))


def test_a_site_sets_its_own_settings_and_no_others(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    given = words(link_to(plan, "b"), tmp_path, "--no-start", *agreed(plan))

    def fault(flag: str) -> str:
        return fednode.fault(*given, "--set", flag)

    with admitting(plan):
        assert "unknown key 'data.tell_clases'; did you mean 'tell_classes'?" in fault(
            "data.tell_clases=false"
        )
        assert "all sites of the mesh share rounds.max" in fault("rounds.max=9")
        assert "has no '='" in fault("seed")
        assert "all sites of the mesh share rounds.max" in fault("rounds={max: 9}")
        assert "--set data.rename={a: b} cannot be set here: write it into node.yaml" in fault(
            "data.rename={a: b}"
        )
        assert not Path("ward").exists()
        assert fednode(*given, "--set", "data.tell_classes=false") == 0, fednode.err
    assert "class names not told (data.tell_classes)" in fednode.out
    assert load_settings(Path("ward/node.yaml"), {}).data.tell_classes is False


def test_a_link_that_was_pasted_in_pieces_is_read_on_and_nothing_is_joined_without_a_yes(
    tmp_path: Path, plan: NodePlan, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = encode(link_to(plan, "b"))
    given = words(text, tmp_path)
    asked = (given[0], *given[2:])
    lines: list[str] = []
    monkeypatch.setattr("click.prompt", lambda *_, **__: lines.pop(0))
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    lines[:] = [text[:60], text[60:120], f"  {text[120:]} ", " "]
    with admitting(plan):
        assert fednode(*asked) == 1, fednode.err
    assert lines == []
    assert "Nothing was joined; the link can still be used." in fednode.err
    assert "Ask a by phone whether the words of the mesh are the same." in fednode.out
    assert not Path("ward").exists()
    lines[:] = [text[:76], " "]
    assert "The link was cut off, or letters in it are missing" in fednode.fault(*asked)


def test_each_try_shows_the_same_port_if_the_usual_one_is_taken(
    tmp_path: Path, plan: NodePlan, fednode: Fednode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    link, shown = encode(link_to(plan, "b")), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as server, admitting(plan):
        taken = server.getsockname()[1]
        monkeypatch.setattr("fednode.app.create.PORT", taken)
        for _ in range(2):
            assert fednode("join", link, "--data", tmp_path / "images") == 1, fednode.err
            shown += [line for line in fednode.out.splitlines() if line.startswith("this node")]
    assert len(shown) == 2
    assert shown[0] == shown[1]
    assert f":{taken}," not in shown[0]


def test_a_deleted_node_joins_again_beside_its_old_files(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    state, yes = plan.state.parent / "b", ("--no-start", *agreed(plan))
    given = words(link_to(plan, "b"), tmp_path, *yes)
    with admitting(plan):
        assert fednode(*given) == 0, fednode.err
    before = NodeIdentity(state).id
    assert fednode("reset", "--state", str(state), "--all", "--yes") == 0, fednode.err
    assert "`fednode reset --all` in that one, and move it away" in fednode.fault(*given)
    Path("ward").rename("before")
    ledger_of(plan).forget("b")  # as `fednode remove` does
    given = words(link_to(plan, "b"), tmp_path, *yes)
    with admitting(plan):
        assert fednode(*given) == 0, fednode.err
    assert NodeIdentity(state).id != before


def test_links_that_are_not_good_get_a_sentence_and_a_code(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    yes, good = agreed(plan), link_to(plan, "b")
    text = encode(good)

    def refused(link: Invitation | str, code: int, said: str) -> None:
        assert fednode(*words(link, tmp_path, *yes)) == code, fednode.err
        assert said in fednode.err
        assert "Traceback" not in fednode.err
        assert good.token.hex() not in fednode.err
        assert text[60:90] not in fednode.err
        assert not Path("ward").exists()

    refused(text[:90], 2, "The link was cut off")
    refused(good, 5, "does not answer: start it")  # the founder is not started
    foreign = keys.written(Ed25519PrivateKey.generate().public_key())
    with admitting(plan):
        refused(replace(good, sponsor="z"), 5, "another node is there")
        refused(replace(good, token=bytes(16)), 5, "it does not know the link")
        refused(replace(good, mesh="other"), 5, "a node of another mesh is there")
        refused(replace(good, mesh_key=foreign), 5, "a node of another mesh is there")
        assert fednode(*words(good, tmp_path, "--no-start", *yes)) == 0, fednode.err
        assert list(ledger_of(plan).read().holders) == ["a", "b"]
        Path("ward").rename("elsewhere")
        state = plan.state.parent / "b"
        state.rename(state.parent / "first")
        refused(good, 6, "was used before, by another key")
        state.rename(state.parent / "second")
        (state.parent / "first").rename(state)
        key = mesh_key_of(plan)
        roster = Roster(MESH, key.public_key())
        roster.keep_in(state / "identity" / "revoked")
        roster.take_revocation(Revocation(MESH, "c", "a key", 1).sign(key))
        refused(replace(good, mesh_key=foreign), 2, "is of another mesh called 'ward'")


def test_words_that_differ_and_questions_that_nobody_answers_are_said(
    tmp_path: Path, plan: NodePlan, fednode: Fednode
) -> None:
    link = link_to(plan, "b")
    with admitting(plan):
        said = fednode.fault(*words(link, tmp_path, "--yes", "--words", "one two three four five"))
    assert "and --words says 'one two three four five'" in said
    assert "--yes needs --words" in fednode.fault(*words(link, tmp_path, "--yes"))
    assert "nobody can be asked here: give --yes and" in fednode.fault(*words("-", tmp_path))
