"""The node's page: its files, and the JSON documents that its script reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fednode.core.events import Record
from fednode.observe.metrics import Metrics
from fednode.observe.page import EVENTS, Page, report
from fednode.observe.status import NodeService
from fednode.observe.web import Web
from fednode.settings.output import PageSettings
from fednode.storage.store import Store
from fednode.wire.gen import status_pb2
from fednode.wire.replies import plain
from tests.unit.observe.pages import DRAWN, OPERATOR, get, page, post, read, seen
from tests.unit.runtime.daemons import ABOUT

WRONG = {"Authorization": "Bearer wrong"}


async def test_the_page_says_what_the_node_is(tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url):
        code, html, headers = await get(url)
        assert code == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        # Nothing is fetched from elsewhere, and nothing runs that is not a file of this node.
        assert not re.search(r'(src|href)="(https?:)?//', html)
        assert "<style" not in html
        assert not re.search(r"<script(?! src=\"page.js\")", html)
        for name in ("page.css", "page.js", "icon.svg"):
            assert (await get(url + name))[0] == 200
        assert (await get(url + "nothing"))[0] == 404
        assert (await get(url + "page.html"))[0] == 404
        code, text, _ = await get(url + "metrics")
        assert code == 200
        assert "\nfednode_round 3.0\n" in text
        assert await get(url + "healthz") == (200, "finished\n", (await get(url + "healthz"))[2])
        assert service.now().round == 3


async def test_the_page_s_status_is_what_the_status_command_prints(tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url):
        for headers, reader in ((OPERATOR, "operator"), ({}, "visitor"), (WRONG, "stranger")):
            told = await read(url, "status", headers)
            wanted = plain(service.now(member=reader != "operator"))
            assert told["reader"] == reader
            changes = {"uptime_s", "clock"}
            assert told["status"].keys() == wanted.keys()
            assert {key for key in wanted if told["status"][key] != wanted[key]} <= changes
            assert (told["status"]["life"], told["status"]["round"]) == ("finished", 3)
        history = (await read(url, "history"))["rounds"]
        assert [one["round"] for one in history] == [1, 2, 3]
        assert all(one["metrics"]["loss"] >= 0 for one in history)
        assert [one["round"] for one in (await read(url, "history?since=3"))["rounds"]] == [3]


async def test_a_node_that_loads_has_a_page_and_takes_no_command(tmp_path: Path) -> None:
    store = Store(tmp_path)
    service = NodeService(store, ABOUT)
    web = Web(service, Metrics().text, PageSettings(), DRAWN)
    url = await web.listen("127.0.0.1:0")
    assert (await read(url, "status"))["status"]["life"] == "loading"
    assert await read(url, "peers") == {}
    assert (await get(url + "healthz"))[0] == 503
    code, text = await post(url, "command/pause", **OPERATOR)
    assert (code, "still loading" in text) == (503, True)
    await web.close()
    store.close()


async def test_new_events_are_read_after_those_that_were(tmp_path: Path) -> None:
    async with page(tmp_path) as (service, url):
        service.events.record(Record("peer.dead", "b is dead", "warning"))
        for number in range(2 * EVENTS):
            service.events.record(Record("peer.alive", f"b answers {number}"))
        service.events.record(Record("tune.failed", "an image is damaged", "warning"))
        events = (await read(url, "events"))["events"]
        assert events[0]["text"] == "b is dead", "old warnings stay"
        assert events[-1]["text"] == f"b answers {2 * EVENTS - 1}"
        assert len(events) == EVENTS + 1
        own = (await read(url, "events", OPERATOR))["events"]
        assert own[-1]["text"] == "an image is damaged", "only the operator sees this"
        last = own[-1]["number"]
        assert (await read(url, f"events?since={last}", OPERATOR))["events"] == []
        service.events.record(Record("peer.dead", "c is dead", "warning"))
        (new,) = (await read(url, f"events?since={last}"))["events"]
        assert (new["text"], new["level"], new["kind"]) == ("c is dead", "warning", "peer.dead")


async def test_a_number_that_is_none_is_named_and_control_characters_are_not_sent(
    tmp_path: Path,
) -> None:
    async with page(tmp_path) as (service, url):
        for since in ("-1", "x", "1.5", "9" * 19, "\u0661"):
            for path in ("history", "events"):
                code, text, _ = await get(f"{url}{path}?since={since}")
                assert (code, text) == (400, "since takes a whole number from 0 on\n")
        service.comparison = lambda: (["\x1b[31mred\u202e"], [])
        assert not {"\\u001b", "\\u202e"} & set(re.findall(r"\\u\w{4}", await seen(url, OPERATOR)))


async def test_what_peers_say_is_kept_while_they_are_members(tmp_path: Path) -> None:
    store = Store(tmp_path)
    service = NodeService(store, ABOUT)
    made = Page(service, lambda _: "visitor")
    peers = [status_pb2.Peer(name="b", state="alive"), status_pb2.Peer(name="d", state="dead")]
    asked = list[list[str]]()

    async def ask(names: Sequence[str]) -> dict[str, status_pb2.StatusReply]:
        asked.append(list(names))
        gain = status_pb2.Gain(images=100, difference=8, squares=20)
        reply = status_pb2.StatusReply(life="running", phase="idle", gain=gain)
        return dict.fromkeys(names, reply)

    service.ask = ask  # type: ignore[method-assign]
    service.now = lambda member=False: status_pb2.StatusReply(  # type: ignore[method-assign]
        name="a", peers=peers
    )
    for _ in range(2):
        await made._ask()
    assert asked == [["b"]], "live peers alone, and at most every few seconds"
    assert {name: said["life"] for name, (_, said, _) in made._reports.items()} == {"b": "running"}
    assert [gain.difference for _, _, gain in made._reports.values()] == [8]
    peers[:] = [status_pb2.Peer(name="c", state="dead")]
    made._asked_at = float("-inf")
    await made._ask()
    assert made._reports == {}
    store.close()


def test_a_member_says_nothing_but_known_words_and_shares() -> None:
    reply = status_pb2.StatusReply(life="dead of laughter", phase="<b>")
    reply.measured.update({"own": 0.5, "new": 7.0, "zero_shot_own": 0.25, "praise": 1.0})
    reply.measured["base"] = float("nan")
    assert report(reply) == {
        "life": "unreadable",
        "phase": "unreadable",
        "measured": {"own": 0.5, "zero_shot_own": 0.25},
    }
