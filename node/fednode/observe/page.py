"""The page of a node: static files, and JSON of the node's status, peers, history and events.

The page shows what `fednode status --format json` prints, and beside it what the other nodes say of
themselves. The node asks its live peers, as `fednode status` would, and only while somebody views
the page. The script writes every name as text. Nothing is fetched from other hosts. A reader who
shows the operator's token can pause the node, and invite and admit sites.

The files tell nothing of the node and need no token. The script takes the token from the fragment
of the link and shows it as a bearer token with each request. There is no cookie: browsers send
cookies to every port of a host, where other users of the machine may listen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, cast

from aiohttp import web

from fednode.core.events import Command
from fednode.core.members.table import LIVE
from fednode.core.policy import Activity
from fednode.core.view import Life
from fednode.observe import summary
from fednode.observe.audience import event_of, told
from fednode.observe.reply import Admission
from fednode.observe.status import NodeService
from fednode.observe.telemetry import MEASURED
from fednode.wire.gen import status_pb2
from fednode.wire.replies import clean, plain

ASSETS: Final = Path(__file__).with_name("assets")
FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The static files, by path; they are the same for every node."""
Reader = Literal["operator", "member", "visitor", "stranger"]
"""Who reads the page: by the token drawn, by page.token, without one, by a token that is wrong."""
KNOWN: Final[frozenset[Reader]] = frozenset({"operator", "member"})
ASKED_EVERY_S: Final = 3.0
EVENTS: Final = 60
UNREADABLE: Final = "unreadable"


class Page:
    """The routes of the page, shared by all readers."""

    def __init__(self, service: NodeService, reader: Callable[[web.Request], Reader]) -> None:
        self._service, self._reader = service, reader
        self._reports: dict[str, tuple[float, dict[str, Any], status_pb2.Gain]] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/status", self._status)
        router.add_get("/peers", self._peers)
        router.add_get("/history", self._history)
        router.add_get("/events", self._events)
        router.add_get("/sites", self._sites)
        router.add_post("/command/{command:pause|resume}", self._command)
        router.add_post("/sites/invite", self._invite)
        router.add_post("/sites/{word:admit|refuse}", self._settle)
        for path in FILES:
            router.add_get(path, self._file)

    async def _file(self, request: web.Request) -> web.Response:
        name, kind = FILES[request.path]
        return web.Response(text=(ASSETS / name).read_text(encoding="utf-8"), content_type=kind)

    async def _status(self, request: web.Request) -> web.Response:
        reader = self._reader(request)
        reply = clean(self._service.now(member=reader not in KNOWN))
        admission = self._service.admission
        gains = [reply.gain, *(gain for _, _, gain in self._reports.values())]
        return web.json_response(
            {
                "reader": reader,
                "mesh_gain": summary.mesh_gain(gains),
                "headline": summary.headline(reply),
                "facts": summary.facts(reply),
                "status": plain(reply),
                "admits": reader == "operator" and admission is not None and admission.open,
            }
        )

    async def _peers(self, request: web.Request) -> web.Response:
        """Answer with what each member last said of itself, by its name."""
        await self._ask()
        now = asyncio.get_running_loop().time()
        said = self._reports.items()
        reports = {name: {"ago_s": now - at, **report} for name, (at, report, _) in said}
        return web.json_response(reports)

    async def _history(self, request: web.Request) -> web.Response:
        """Answer with the figures of the rounds from `since` on."""
        return web.json_response(plain(await self._service.history(_since(request))))

    async def _events(self, request: web.Request) -> web.Response:
        """Answer with the latest warnings, errors and other records after the number `since`."""
        since, known, events = _since(request), self._reader(request) in KNOWN, self._service.events
        latest = [one for one in events.kept if known or told(one.record)][-EVENTS:]
        wrong = [one for one in events.troubles if known or told(one.record)]
        records = {one.number: one for one in (*wrong, *latest) if one.number > since}
        sent = [plain(event_of(records[number])) for number in sorted(records)]
        return web.json_response({"events": sent})

    async def _ask(self) -> None:
        """Ask live peers for their status, at most every ASKED_EVERY_S; forget who is no member."""
        clock = asyncio.get_running_loop().time
        if self._asking.locked() or clock() - self._asked_at < ASKED_EVERY_S:
            return
        async with self._asking:
            self._asked_at = clock()
            peers = self._service.now().peers
            replies = await self._service.ask([one.name for one in peers if one.state in LIVE])
            self._reports |= {
                name: (clock(), report(reply), reply.gain) for name, reply in replies.items()
            }
            members = {one.name for one in peers}
            for name in self._reports.keys() - members:
                del self._reports[name]

    async def _command(self, request: web.Request) -> web.Response:
        self._require(request)
        said = self._service.command(cast("Command", request.match_info["command"]))
        return web.Response(text=f"{said}\n")

    async def _sites(self, request: web.Request) -> web.Response:
        """Answer with the sites that wait to be admitted, and the words of the members' keys."""
        return web.json_response(await self._admission(request).sites())

    async def _invite(self, request: web.Request) -> web.Response:
        """Make a link for a site; the answer has it, and no other answer does."""
        admission, form = self._admission(request), await request.post()
        site = str(form.get("site", "")).strip()
        return web.json_response(await admission.invite(site, bool(form.get("approve"))))

    async def _settle(self, request: web.Request) -> web.Response:
        """Admit or refuse the key whose words the operator saw."""
        admission, form = self._admission(request), await request.post()
        good = request.match_info["word"] == "admit"
        said = await admission.settle(str(form.get("site", "")), str(form.get("id", "")), good)
        return web.Response(text=f"{said}\n")

    def _admission(self, request: web.Request) -> Admission:
        """Return the admission of sites; raise the answer to a reader who may not use it."""
        self._require(request)
        admission = self._service.admission
        if admission is None or not admission.open:
            raise web.HTTPNotFound(text="this node admits no sites\n")
        return admission

    def _require(self, request: web.Request) -> None:
        """Raise the answer to a request that does not show the operator's token."""
        if self._reader(request) != "operator":
            raise web.HTTPUnauthorized(
                text="commands take the token that this node drew: open the link that `fednode "
                "status` prints on the node's own machine\n"
            )


def report(reply: status_pb2.StatusReply) -> dict[str, Any]:
    """Return what a member says of itself: known words, and accuracies from 0 to 1."""
    return {
        "life": reply.life if reply.life in frozenset(Life) else UNREADABLE,
        "phase": reply.phase if reply.phase in frozenset(Activity) else UNREADABLE,
        "measured": {
            key: reply.measured[key] for key in MEASURED if 0.0 <= reply.measured.get(key, -1) <= 1
        },
    }


def _since(request: web.Request) -> int:
    """Return the number from which a reader asks; raise the answer to one that is none."""
    number = request.query.get("since", "0")
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise web.HTTPBadRequest(text="since takes a whole number from 0 on\n")
    return int(number)
