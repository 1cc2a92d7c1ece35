"""What a relay shows over HTTP."""

from __future__ import annotations

import aiohttp
import pytest

from fednode.errors import AddressError
from fednode.transports.relay import Relay
from fednode_bootstrap.relay_pages import HEALTH, Pages


async def test_refusals_are_counted_by_reason_and_draining_is_shown() -> None:
    relay = Relay(lambda _: "")
    relay.counts.refused.update(("absent", "absent", "full"))
    pages = Pages(relay)
    at = await pages.listen("127.0.0.1:0")
    pages.draining = True
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{at}/metrics") as answer:
            text = await answer.text()
        async with session.get(f"{at}{HEALTH}") as answer:
            assert answer.status == 503
    assert 'fednode_relay_refusals_total{reason="absent"} 2.0' in text
    assert 'fednode_relay_refusals_total{reason="full"} 1.0' in text
    with pytest.raises(AddressError, match="cannot be listened on"):
        await Pages(relay).listen(at.removeprefix("http://"))
    await pages.close()
