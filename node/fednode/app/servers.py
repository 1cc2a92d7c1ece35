"""All interfaces of a node for people and tools: status, health, page, metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fednode.app.baseline import comparison
from fednode.app.mesh import Mesh
from fednode.app.page_link import draw, keep_link
from fednode.app.plan import NodePlan
from fednode.data.names import visible
from fednode.learn.learner import Learner
from fednode.observe.events import Events
from fednode.observe.health import HealthService
from fednode.observe.metrics import Metrics
from fednode.observe.reply import About, NodeView
from fednode.observe.status import NodeService
from fednode.observe.working import Working
from fednode.settings.shared import shared_text
from fednode.storage.store import Store

if TYPE_CHECKING:
    from fednode.observe.web import Web


class Servers:
    """The node's interfaces, which answer from the start, while the model still loads."""

    def __init__(self, plan: NodePlan, mesh: Mesh, store: Store) -> None:
        self._settings, self._state = plan.settings, plan.state
        self.events, self.metrics = Events(), Metrics()
        self.working = Working(logging.getLogger("fednode").info)
        about = About(
            name=plan.name,
            mesh=plan.peers.mesh,
            policy=plan.policy.name,
            node_id=mesh.id,
            address=plan.address,
            model=plan.settings.model.title,
            tells_classes=plan.settings.data.tell_classes,
            tells_gain=plan.settings.privacy.clip is None,
            caution=plan.policy.caution,
            transport=None if mesh.identity is None else mesh.transport,
            shared=shared_text(plan.settings).encode(),
        )
        self.service = NodeService(
            store,
            about,
            mesh.transport.caller,
            self.events,
            mesh.transport.channel,
            mesh.members.check_member,
            self.working.__str__,
        )
        self.service.comparison = lambda: comparison(self._settings, self._state)
        self.metrics.watch(self.service.now)
        self.health = HealthService()
        self._web: Web | None = None
        mesh.refusals.show = self.events.record

    def register(self, server: Any) -> None:
        self.service.register(server)
        self.health.register(server)

    async def open(self) -> None:
        """Listen on the page's port, if it is set; raise AddressError or ConfigError."""
        await self.health.loading()
        keep_link(self._state, "", "")
        if self._settings.page.listen is not None:
            from fednode.observe.web import Web  # saves 36 MB in a node without a page

            drawn = draw(self._state)
            self._web = Web(self.service, self.metrics.text, self._settings.page, drawn)
            self.service.page = await self._web.listen(self._settings.page.listen)
            keep_link(self._state, self.service.page, drawn)
            log = logging.getLogger("fednode")
            log.info("page: %s and metrics: %smetrics", self.service.page, self.service.page)

    async def attach(self, node: NodeView, learner: Learner) -> None:
        self.service.attach(node, learner)
        if self._settings.data.tell_classes and learner.classes:
            logging.getLogger("fednode").info("%s", visible(learner.classes))
        await self.health.serving()

    async def close(self) -> None:
        if self._web is not None:
            await self._web.close()
