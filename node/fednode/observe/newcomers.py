"""The part of the page on newcomers: links for new sites, sites that wait, words of members.

Only the operator of a node that admits sees this part. A link is in the answer to the request that
made the link, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jinja2
from aiohttp import web

from fednode.errors import FednodeError
from fednode.observe.admitting import Admitting

PART: Final = "newcomers"
"""The template of what changes while the page is open."""
INVITE: Final = "invite"
"""The template of the form for a new link."""


class Newcomers:
    """The routes for newcomers, and what the page shows of them."""

    def __init__(
        self,
        admitting: Callable[[], Admitting | None],
        require: Callable[[web.Request], None],
        templates: jinja2.Environment,
    ) -> None:
        """Set up. admitting: returns the node's admission; None if it admits nobody.

        require: raises the answer to a request that is not the operator's.
        """
        self._admitting, self._require, self._templates = admitting, require, templates

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to a router."""
        router.add_post("/newcomers/invite", self._invite)
        router.add_post("/newcomers/{word:admit|refuse}", self._settle)

    def facts(self, operator: bool) -> dict[str, Any]:
        """Return what the templates show to a reader."""
        admitting = self._admitting()
        if admitting is None or not admitting.open or not operator:
            return {"admits": False, "waiting": []}
        return {
            "admits": True,
            "waiting": admitting.waiting(),
            "sites": admitting.members(),
            "mesh_words": admitting.mesh_words(),
        }

    async def _invite(self, request: web.Request) -> web.Response:
        """Return the part of the page with a new link."""
        admitting, asked = await self._asked(request)
        site = str(asked.get("site", "")).strip()
        try:
            made = await admitting.invite(site, bool(asked.get("approve")))
        except FednodeError as fault:
            raise web.HTTPBadRequest(text=f"{fault}\n") from fault
        html = self._templates.get_template("invitation.html").render(made=made)
        return web.Response(text=html, content_type="text/html")

    async def _settle(self, request: web.Request) -> web.Response:
        """Admit or refuse the key whose words the operator saw."""
        admitting, asked = await self._asked(request)
        good = request.match_info["word"] == "admit"
        try:
            said = await admitting.settle(
                str(asked.get("site", "")), str(asked.get("id", "")), good
            )
        except FednodeError as fault:
            raise web.HTTPBadRequest(text=f"{fault}\n") from fault
        return web.Response(text=f"{said}\n")

    async def _asked(self, request: web.Request) -> tuple[Admitting, Any]:
        """Return the admission and the form of a request; raise the answer to a bad one."""
        self._require(request)
        admitting = self._admitting()
        if admitting is None or not admitting.open:
            raise web.HTTPNotFound(text="this node admits no sites\n")
        return admitting, await request.post()
