"""The part of the page on the settings that a mesh shares: what is in force, and what is proposed.

Only the operator of the node sees this part, and takes or refuses a proposed change there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from fednode.errors import FednodeError
from fednode.observe.settings import Deciding

PART: Final = "settings"
"""The template of this part; it changes while the page is open."""


class Decisions:
    """The routes for decisions on settings documents."""

    def __init__(
        self, deciding: Callable[[], Deciding | None], require: Callable[[web.Request], None]
    ) -> None:
        """Set up. deciding: returns what decides at the node; None while it loads.

        require: raises the answer to a request that is not the operator's.
        """
        self._deciding, self._require = deciding, require

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes to a router."""
        router.add_post("/settings/{word:take|refuse}", self._decide)

    async def _decide(self, request: web.Request) -> web.Response:
        """Take or refuse the document that the operator saw; a node may load a model first."""
        self._require(request)
        deciding = self._deciding()
        if deciding is None:
            raise web.HTTPServiceUnavailable(text="this node is still loading\n")
        digest = str((await request.post()).get("digest", ""))
        if not digest:
            raise web.HTTPBadRequest(text="the digest of the settings is missing\n")
        decide = deciding.take if request.match_info["word"] == "take" else deciding.refuse
        try:
            said = await decide(digest)
        except FednodeError as fault:
            raise web.HTTPBadRequest(text=f"{fault}\n") from fault
        return web.Response(text=f"{said}\n")
