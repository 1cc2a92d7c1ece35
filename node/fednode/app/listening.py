"""What `fednode check` finds in the addresses that a node is to listen on, and tells its peers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Literal

from fednode.app.plan import NodePlan
from fednode.errors import FednodeError
from fednode.transports.address import RELAY, parse
from fednode.transports.gates import check_free

Found = tuple[Literal["fault", "warning", "note"], str]
"""How bad a finding is, and a sentence."""


def findings(plan: NodePlan, running: bool) -> Iterator[Found]:
    """Check the node's own address, and all that it would listen on unless it runs already."""
    yield from _of_name(plan)
    if running:
        return
    settings = plan.settings
    wanted: list[Callable[[], object]] = [
        *([] if plan.listen == RELAY else [lambda: check_free(parse(plan.listen))])
    ]
    page = settings.page.listen
    if page is not None:
        from fednode.observe.web import admissible

        wanted.append(lambda: admissible(page, settings.page.token or ""))
    for check_address in wanted:
        try:
            check_address()
        except FednodeError as fault:
            yield from (("fault", line) for line in str(fault).splitlines())


def _of_name(plan: NodePlan) -> Iterator[Found]:
    """Say if the name in the address that this node tells its peers does not resolve here."""
    if parse(plan.address).relayed:
        return
    host = parse(plan.address).numeric
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        text = f"This node tells its peers that it is at {plan.address}, and the name {host} does"
        remedy = "set advertise to an address that they reach"
        yield ("note", f"{text} not resolve here: if it does not for them, {remedy}.")
