"""What a node's gRPC server needs: its options, a folder for its sockets, a free port."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fednode.errors import AddressError
from fednode.transports.address import Endpoint

Register = Callable[[Any], None]
"""Adds a servicer to a grpc.aio server, such as a generated add_..._to_server function."""
Options = tuple[tuple[str, int | str], ...]

CALLS_MAX: Final = 256
"""Calls at a time of all callers without keys, who cannot be told apart."""
CLOSE_GRACE_S: Final = 0.5
PLACE_BYTES: Final = 64
"""The longest path of a place for sockets; the system takes 107 bytes for the path of a socket."""
PLAIN: Final = "/tmp"
# The protobuf field around the bytes of a Frame.
AROUND_BYTES: Final = 16
KEEPALIVE: Final[Options] = (
    ("grpc.keepalive_time_ms", 20_000),
    # A connection that is lost on a busy machine costs a handshake, and makes it busier.
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
OPTIONS: Final[Options] = (
    *KEEPALIVE,
    # Off: otherwise two daemons could share a port, and each would get half of the messages.
    ("grpc.so_reuseport", 0),
    # A caller that has not completed its handshake by then is cut off (gRPC's default: 120 s).
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Calls at a time of one connection; a caller that knows the limit waits, others are reset.
    ("grpc.max_concurrent_streams", 64),
    # Header fields of one call: those above the soft limit are refused by chance, above the other
    # always. fednode's own have some hundred bytes, a revocation's proof a kilobyte.
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    # The table of header fields that later calls name by one byte: with gRPC's default of 4,096
    # bytes, 8 kB stand for 24 MB.
    ("grpc.http2.hpack_table_size.decoder", 512),
    # Early pings close no connection. gRPC 1.85 adds an error for each ping that comes after the
    # last strike, and copies all of them each time: a flood that is struck costs more than one that
    # is answered.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Calls taken from one read of a connection before others have their turn.
    ("grpc.http2.max_requests_per_read", 16),
    # Each stream that the caller resets is answered by a ping, whose answer gRPC waits for.
    ("grpc.http2.ping_on_rst_stream_percent", 100),
)


def socket_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new private folder for sockets, in /tmp if TMPDIR's path is too long for them.

    Raise AddressError if there is no place for one.
    """
    place = PLAIN
    try:
        usual = tempfile.gettempdir()  # the first of the usual places that can be written
        if len(os.fsencode(usual)) <= PLACE_BYTES:
            place = usual
        return tempfile.TemporaryDirectory(prefix="fednode-", dir=place)
    except OSError as fault:
        raise AddressError(
            f"there is no place for this node's sockets ({place}: {fault.strerror or fault}): set "
            f"TMPDIR to a folder that this user can write, with a path of at most {PLACE_BYTES} "
            "bytes"
        ) from fault


def connected_as(path: Path, to: str) -> socket.socket:
    """Return a unix socket that is connected with another, under a name of its own.

    Raise OSError if nobody listens there.
    """
    inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    inner.setblocking(False)
    try:
        inner.bind(str(path))
        inner.connect(to)
    except OSError:
        inner.close()
        raise
    finally:
        path.unlink(missing_ok=True)
    return inner


def check_free(endpoint: Endpoint) -> None:
    """Raise AddressError if the port cannot be bound.

    The operating system is asked first because it gives a reason; gRPC would give none and write to
    stderr.
    """
    family = socket.AF_INET6 if ":" in endpoint.numeric else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC's own socket: a port whose last connections linger counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((endpoint.numeric, endpoint.port))
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            raise in_use(endpoint) from fault
        reason = fault.strerror or str(fault)
        raise AddressError(f"cannot listen on {endpoint}: {reason}; choose another") from fault


def in_use(endpoint: Endpoint) -> AddressError:
    return AddressError(
        f"cannot listen on {endpoint}: the port {endpoint.port} is in use; "
        "stop the other process or choose another port"
    )
