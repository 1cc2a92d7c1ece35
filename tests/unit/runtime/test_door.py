"""The door, before and after a node has loaded."""

from __future__ import annotations

from fednode.runtime.door import Door
from fednode.wire import codec


async def test_a_closed_door_says_that_the_node_is_loading() -> None:
    door = Door()
    ack = codec.decode_ack(await door.on_frame(b"anything", ""))
    assert ack.code == "busy"
    assert "loading" in ack.detail

    async def echo(frame: bytes, caller: str = "") -> bytes:
        return frame

    door.open(echo)
    assert await door.on_frame(b"x", "") == b"x"
