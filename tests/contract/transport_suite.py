"""What every transport promises. Subclasses provide the fixture `make`; see test_transports.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fednode.errors import AddressError, FrameError, Unreachable
from fednode.transports.base import Address, Transport
from fednode.transports.framing import FRAME_BYTES_MAX, PIECE_BYTES, REPLY_BYTES_MAX

Make = Callable[[], Transport]
ANY = "127.0.0.1:0"
# A bound for a test that hangs, not a measurement: everything here takes milliseconds.
GUARD_S = 180.0


async def echo(frame: bytes, caller: str = "") -> bytes:
    """Answer with the begin of a frame and its length."""
    return frame[:64] + b"/" + str(len(frame)).encode()


class Stuck:
    """A handler that takes a frame and answers when it is told to."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.free = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, frame: bytes, caller: str = "") -> bytes:
        self.taken.set()
        try:
            await self.free.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"late " + frame


async def address_of_nobody(make: Make) -> Address:
    """Return an address that was free a moment ago."""
    transport = make()
    address = await transport.listen(ANY, echo)
    await transport.close()
    return address


async def send_until_reached(sender: Transport, to: Address, frame: bytes) -> bytes:
    """Send a frame until somebody answers; return the reply."""
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                return await sender.send(to, frame, GUARD_S)
            except Unreachable:
                await asyncio.sleep(0)


class TransportContract:
    """Tests for any transport; nothing here knows which one."""

    @pytest.mark.parametrize(
        "size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES]
    )
    async def test_a_frame_arrives_whole_and_its_reply_returns(self, make: Make, size: int) -> None:
        frame = (bytes(range(256)) * (size // 256 + 1))[:size]
        arrived: list[bytes] = []

        async def on_frame(data: bytes, caller: str = "") -> bytes:
            arrived.append(data)
            return bytes(reversed(range(256)))

        address = await make().listen(ANY, on_frame)
        assert await make().send(address, frame, GUARD_S) == bytes(reversed(range(256)))
        assert arrived == [frame]
        assert type(arrived[0]) is bytes

    async def test_a_frame_over_the_cap_is_refused_before_it_leaves(self, make: Make) -> None:
        handler = Stuck()
        address = await make().listen(ANY, handler)
        with pytest.raises(FrameError, match=f"{FRAME_BYTES_MAX + 1:,} bytes.*{FRAME_BYTES_MAX:,}"):
            await make().send(address, bytes(FRAME_BYTES_MAX + 1), GUARD_S)
        assert not handler.taken.is_set()

    async def test_a_reply_over_the_cap_ends_in_unreachable(self, make: Make) -> None:
        size = REPLY_BYTES_MAX

        async def on_frame(data: bytes, caller: str = "") -> bytes:
            return bytes(size)

        address = await make().listen(ANY, on_frame)
        assert len(await make().send(address, b"", GUARD_S)) == REPLY_BYTES_MAX
        size += 1
        with pytest.raises(Unreachable, match=address):
            await make().send(address, b"", GUARD_S)

    async def test_many_sends_at_once_each_get_their_own_reply(self, make: Make) -> None:
        address = await make().listen(ANY, echo)
        sender = make()
        frames = [f"frame {number}".encode() * (number + 1) for number in range(200)]
        replies = await asyncio.gather(*(sender.send(address, each, GUARD_S) for each in frames))
        assert replies == [await echo(frame) for frame in frames]

    async def test_large_frames_from_several_senders_do_not_mix(self, make: Make) -> None:
        address = await make().listen(ANY, echo)
        frames = [bytes([number]) * (2 * PIECE_BYTES + number) for number in range(4)]
        replies = await asyncio.gather(*(make().send(address, each, GUARD_S) for each in frames))
        assert replies == [await echo(frame) for frame in frames]

    async def test_a_frame_that_waits_holds_up_no_other(self, make: Make) -> None:
        stuck = Stuck()

        async def on_frame(data: bytes, caller: str = "") -> bytes:
            return await (stuck if data == b"first" else echo)(data)

        address = await make().listen(ANY, on_frame)
        sender = make()
        first = asyncio.ensure_future(sender.send(address, b"first", GUARD_S))
        await stuck.taken.wait()
        assert await sender.send(address, b"second", GUARD_S) == await echo(b"second")
        assert not first.done()
        stuck.free.set()
        assert await first == b"late first"

    async def test_a_handler_may_send(self, make: Make) -> None:
        relay, far = make(), make()
        beyond = await far.listen(ANY, echo)

        async def forward(frame: bytes, caller: str = "") -> bytes:
            return b"via " + await relay.send(beyond, frame, GUARD_S)

        address = await relay.listen(ANY, forward)
        assert await far.send(address, b"x", GUARD_S) == b"via " + await echo(b"x")

    async def test_a_node_reaches_itself(self, make: Make) -> None:
        node = make()
        address = await node.listen(ANY, echo)
        assert await node.send(address, b"self", GUARD_S) == await echo(b"self")

    async def test_nobody_at_the_address_is_unreachable(self, make: Make) -> None:
        address = await address_of_nobody(make)
        sender = make()
        for _ in range(3):
            async with asyncio.timeout(GUARD_S):
                with pytest.raises(Unreachable, match=address):
                    await sender.send(address, b"x", 1.0)

    async def test_a_slow_handler_runs_into_the_deadline_and_is_cancelled(self, make: Make) -> None:
        stuck = Stuck()
        address = await make().listen(ANY, stuck)
        sender = make()
        async with asyncio.timeout(GUARD_S):
            # On a busy machine the first deadlines may pass before the frame arrives.
            while not stuck.taken.is_set():
                with pytest.raises(Unreachable, match=rf"{address} did not answer within 0\.1 s"):
                    await sender.send(address, b"x", 0.1)
            await stuck.cancelled.wait()

    async def test_a_cancelled_sender_sees_its_cancellation(self, make: Make) -> None:
        stuck = Stuck()
        address = await make().listen(ANY, stuck)
        call = asyncio.ensure_future(make().send(address, b"x", GUARD_S))
        await stuck.taken.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert call.cancelled()

    async def test_a_handler_that_breaks_its_promise_ends_in_unreachable(self, make: Make) -> None:
        async def on_frame(data: bytes, caller: str = "") -> bytes:
            raise LookupError("a fault in the node")

        address = await make().listen(ANY, on_frame)
        with pytest.raises(Unreachable, match=address):
            await make().send(address, b"x", GUARD_S)

    @pytest.mark.parametrize("end", ["receiver", "sender"])
    async def test_closing_an_end_ends_a_call_under_way(self, make: Make, end: str) -> None:
        stuck = Stuck()
        ends = {"receiver": make(), "sender": make()}
        address = await ends["receiver"].listen(ANY, stuck)
        call = asyncio.ensure_future(ends["sender"].send(address, b"x", GUARD_S))
        async with asyncio.timeout(GUARD_S):
            await stuck.taken.wait()
            await ends[end].close()
            with pytest.raises(Unreachable, match=address):
                await call

    async def test_listening_on_a_port_in_use_is_an_address_error(self, make: Make) -> None:
        address = await make().listen(ANY, echo)
        with pytest.raises(AddressError, match=address):
            await make().listen(address, echo)
        assert await make().send(address, b"x", GUARD_S) == await echo(b"x")

    async def test_listening_twice_is_an_address_error(self, make: Make) -> None:
        transport = make()
        address = await transport.listen(ANY, echo)
        with pytest.raises(AddressError, match="already"):
            await transport.listen(ANY, echo)
        assert await make().send(address, b"x", GUARD_S) == await echo(b"x")

    @pytest.mark.parametrize("address", ["", "127.0.0.1:65536", "a b:1"])
    async def test_what_is_no_address_is_an_address_error(self, make: Make, address: str) -> None:
        with pytest.raises(AddressError, match="host:port"):
            await make().listen(address, echo)
        with pytest.raises(AddressError, match="host:port"):
            await make().send(address, b"x", GUARD_S)

    async def test_a_receiver_that_returns_on_its_port_is_reached_again(self, make: Make) -> None:
        receiver = make()
        address = await receiver.listen(ANY, echo)
        sender = make()
        assert await sender.send(address, b"before", GUARD_S) == await echo(b"before")
        await receiver.close()
        with pytest.raises(Unreachable):
            await sender.send(address, b"between", GUARD_S)
        assert await make().listen(address, echo) == address
        assert await send_until_reached(sender, address, b"after") == await echo(b"after")

    async def test_close_is_idempotent_and_final(self, make: Make) -> None:
        transport = make()
        address = await transport.listen(ANY, echo)
        await asyncio.gather(transport.close(), transport.close())
        await transport.close()
        with pytest.raises(Unreachable):
            await make().send(address, b"x", GUARD_S)
        with pytest.raises(Unreachable):
            await transport.send(address, b"x", GUARD_S)
        with pytest.raises(AddressError, match="closed"):
            await transport.listen(ANY, echo)
        await make().close()  # it was never opened
