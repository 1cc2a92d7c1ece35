"""The page of a node: an empty document, and its parts, rendered here and sent as they change.

The page shows this node's own view, and beside it what the other nodes say of themselves. The node
asks its live peers, as `fednode status` would, and only while somebody views the page. Names of
peers and classes are text: templates escape everything they print. Nothing is fetched from other
hosts. A reader who may command the node can pause it, resume it and begin its rounds again here.

The document tells nothing of the node and needs no token. Its script takes the token from the
fragment of the link and shows it as a bearer token with each request. There is no cookie: browsers
send cookies to every port of a host, where other users of the machine may listen.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import jinja2
from aiohttp import web
from PIL import Image

from fednode import units
from fednode.core import company
from fednode.core.events import Command
from fednode.core.members.table import GONE, LIVE
from fednode.core.types import SPLITS, ZERO_SHOT
from fednode.errors import Refused
from fednode.observe import rows
from fednode.observe.audience import told
from fednode.observe.drawing import Chart, Graph, chart, graph
from fednode.observe.events import Logged
from fednode.observe.newcomers import INVITE, PART, Newcomers
from fednode.observe.paths import sentences
from fednode.observe.present import merge_counts
from fednode.observe.status import NodeService
from fednode.wire.gen import status_pb2

ASSETS: Final = Path(__file__).with_name("assets")
FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The files of the empty document, by path; they are the same for every node."""
PARTS: Final = ("head", "command", "nodes", "mesh", "charts", "events")
OPERATORS: Final = (*PARTS, PART, INVITE)
"""The parts that the node's operator sees."""
EVERY_S: Final = 1.0
ASKED_EVERY_S: Final = 3.0
ROUNDS: Final = 1000
EVENTS: Final = 60
VIEWERS_MAX: Final = 16
"""Streams of viewers without the operator's token, all together."""
OPERATORS_MAX: Final = 4
"""Streams of viewers with the operator's token; no other viewer takes their places."""
READS_S: Final = 30.0
"""A viewer that does not read for so long loses its stream."""
THUMBNAIL: Final = 128
History = list[tuple[int, Mapping[str, float], Mapping[str, int]]]


class Page:
    """The routes of the page, shared by all viewers."""

    def __init__(
        self,
        service: NodeService,
        knows: Callable[[web.Request], bool],
        commands: Callable[[web.Request], bool] = lambda _: False,
    ) -> None:
        """Set up. knows: tells whether a request shows a token, which training images need.

        commands: tells whether it shows the token of the node's operator, which commands need.
        """
        self._service, self._knows, self._commands = service, knows, commands
        self._viewers = {False: 0, True: 0}  # by whether they show the operator's token
        self._told: dict[str, rows.SelfView] = {}
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._past: tuple[int, list[Chart]] = (-1, [])
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(ASSETS),
            autoescape=True,
            trim_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters.update(
            size=units.size, duration=units.duration, clock=_clock, percent=_percent
        )
        self._newcomers = Newcomers(lambda: service.admitting, self._require, self._templates)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to a router."""
        router.add_get("/live", self._live)
        router.add_get(r"/image/{name:\d{1,6}}/{image:\d}", self._image)
        router.add_post("/command/{command:pause|resume}", self._command)
        self._newcomers.add_to(router)
        for path in FILES:
            router.add_get(path, self._file)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        """Send the changed parts every EVERY_S seconds, until the viewer leaves."""
        commands, known = self._commands(request), self._knows(request)
        most = OPERATORS_MAX if commands else VIEWERS_MAX
        if self._viewers[commands] >= most:
            return web.Response(status=503, text=f"{most} look at this page already\n")
        stream = web.StreamResponse(
            headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
        )
        strange = "Authorization" in request.headers and not known
        self._viewers[commands] += 1
        try:
            await stream.prepare(request)
            shown: dict[str, str] = {}
            held: list[tuple[str, tuple[Path, ...]]] | None = None
            names = OPERATORS if commands else PARTS
            while True:
                facts = await self._facts(known) | self._newcomers.facts(commands)
                facts |= {"commands": commands, "pictured": known, "strange": strange}
                parts = {name: self._render(name, facts) for name in names}
                before, held = held, self._service.examples(member=not known)
                facts["classes"] = [(name, len(paths)) for name, paths in held]
                parts["classes"] = (
                    shown["classes"] if held == before else self._render("classes", facts)
                )
                changed = {name: html for name, html in parts.items() if shown.get(name) != html}
                shown = parts
                line = json.dumps(changed) if changed else ""  # an empty line: still here
                async with asyncio.timeout(READS_S):
                    await stream.write(f"{line}\n".encode())
                await asyncio.sleep(EVERY_S)
        except (ConnectionError, TimeoutError):
            return stream
        finally:
            self._viewers[commands] -= 1

    def _render(self, name: str, facts: Mapping[str, Any]) -> str:
        return self._templates.get_template(f"{name}.html").render(facts)

    async def _file(self, request: web.Request) -> web.Response:
        name, kind = FILES[request.path]
        return web.Response(text=(ASSETS / name).read_text(encoding="utf-8"), content_type=kind)

    async def _image(self, request: web.Request) -> web.Response:
        """Return a small copy of a class's example image, if the request shows the token."""
        if not self._knows(request):
            raise web.HTTPUnauthorized(text="training images take the token of `fednode status`\n")
        at, image = int(request.match_info["name"]), int(request.match_info["image"])
        examples = self._service.examples()
        if at >= len(examples) or image >= len(examples[at][1]):
            raise web.HTTPNotFound
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(None, _thumbnail, examples[at][1][image])
        except (OSError, ValueError) as fault:
            raise web.HTTPNotFound from fault
        return web.Response(body=data, content_type="image/jpeg")

    async def _command(self, request: web.Request) -> web.Response:
        """Pass a command of the operator to the node."""
        self._require(request)
        try:
            said = self._service.command(cast("Command", request.match_info["command"]))
        except Refused as fault:
            raise web.HTTPServiceUnavailable(text=f"{fault}\n") from fault
        return web.Response(text=f"{said}\n")

    def _require(self, request: web.Request) -> None:
        """Raise the answer to a request that does not show the operator's token."""
        if not self._commands(request):
            raise web.HTTPUnauthorized(
                text="commands take the token that this node drew: open the link that `fednode "
                "status` prints on the node's own machine\n"
            )

    async def _facts(self, known: bool) -> dict[str, Any]:
        """Return what the templates show. known: the reader showed a token."""
        now, clock = self._service.now(member=not known), asyncio.get_running_loop().time
        events, troubles = (
            [logged for logged in ring if known or told(logged.record)]
            for ring in (self._service.events.kept, self._service.events.troubles)
        )
        await self._ask(now)
        return {
            "now": now,
            "splits": SPLITS,
            "zero_shot": ZERO_SHOT,
            "alive": sum(peer.state == "alive" for peer in now.peers),
            "members": sum(peer.state not in GONE for peer in now.peers),
            "headline": rows.headline(now.peers),
            "left_s": rows.left_s(now),
            "together": company.sentence(merge_counts(now), now.alone_by_wish),
            "lonely": now.rounds_run > 1 and company.never(merge_counts(now), now.alone_by_wish),
            "nodes": rows.rows(now, self._told, clock()),
            "columns": rows.columns(now.peers),
            "ways": sentences(now),
            "graph": self._graph(now),
            "charts": await self._charts(now.round),
            "events": _shown(events[-EVENTS:]),
            "troubles": _shown(troubles),
        }

    async def _charts(self, number: int) -> list[Chart]:
        """Return the charts up to a round, drawn once per round for all viewers."""
        if self._past[0] != number:
            history = await self._service.rounds(max(0, number - ROUNDS))
            # If the round is still being written, the next call looks for it again.
            self._past = (history[-1][0] if history else 0), charts(history)
        return self._past[1]

    def _graph(self, now: status_pb2.StatusReply) -> Graph:
        own = now.name
        states = {peer.name: peer.state for peer in now.peers}
        sent = {
            (name, other): count
            for name, view in self._told.items()
            for other, count in view.sent.items()
        }
        for peer in now.peers:
            sent[own, peer.name] = peer.traffic.messages_out
            sent.setdefault((peer.name, own), peer.traffic.messages_in)
        live = {name for name, state in states.items() if state in LIVE}
        missing = sorted(live - self._told.keys())
        note = f"; what {', '.join(missing)} sent to others is not known" if missing else ""
        return graph(own, {**states, own: now.life}, sent, note)

    async def _ask(self, now: status_pb2.StatusReply) -> None:
        """Ask live peers for their status, at most every ASKED_EVERY_S."""
        clock = asyncio.get_running_loop().time
        if self._asking.locked() or clock() - self._asked_at < ASKED_EVERY_S:
            return
        async with self._asking:
            self._asked_at = clock()
            live = [peer.name for peer in now.peers if peer.state in LIVE]
            replies = await self._service.ask(live)
            # Only members of this mesh are kept, whatever names a peer makes up.
            members = frozenset({now.name, *(peer.name for peer in now.peers)})
            fresh = {
                name: rows.self_view(reply, members, clock()) for name, reply in replies.items()
            }
            self._told = {
                name: view for name, view in (self._told | fresh).items() if name in members
            }


def charts(history: History) -> list[Chart]:
    """Return the charts of loss, accuracies and bytes over rounds."""
    accuracies = {
        key: [(at, metrics[key]) for at, metrics, _ in history if key in metrics] for key in SPLITS
    }
    zero_shot = {
        key: (f"zero-shot {key}", metrics[ZERO_SHOT + key])
        for key in SPLITS
        for _, metrics, _ in history
        if ZERO_SHOT + key in metrics
    }
    losses = [(at, metrics["loss"]) for at, metrics, _ in history if "loss" in metrics]
    span = (history[0][0], history[-1][0]) if history else None
    ways = {"tensors": "payload_out", "serialized": "serialized_out", "wire": "wire_out"}
    sizes = {
        name: [(at, float(meters.get(key, 0))) for at, _, meters in history]
        for name, key in ways.items()
    }
    return [
        chart("Accuracy", accuracies, _percent, levels=zero_shot, span=span),
        chart("Training loss", {"loss": losses}, lambda value: f"{value:.3g}", span=span),
        chart("Bytes sent since the start", sizes, _size, least=(0.0, 1000.0), span=span),
    ]


def _shown(events: Iterable[Logged]) -> list[dict[str, Any]]:
    """Return records for the page, newest first."""
    shown = [
        {"time": logged.time, "level": logged.record.level, "text": logged.record.text}
        for logged in events
    ]
    return shown[::-1]


def _clock(at: float) -> str:
    """Return the local time of day; with the date if it is not today's."""
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)


def _size(count: float) -> str:
    return units.size(round(count)).replace(".0 ", " ")


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _thumbnail(path: Path) -> bytes:
    from fednode.data.decode import decode

    with decode(path, THUMBNAIL) as decoded:
        side = min(decoded.image.size)
        left, top = (decoded.image.width - side) // 2, (decoded.image.height - side) // 2
        box = (left, top, left + side, top + side)
        small = decoded.image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR, box)
    told = io.BytesIO()
    small.save(told, "JPEG", quality=85)
    return told.getvalue()
