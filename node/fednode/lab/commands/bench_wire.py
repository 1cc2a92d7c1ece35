"""`fednode bench wire`: what an exchange of prompts costs on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import uvloop

from fednode.lab.bench.output import Column, Panel, draw, output_options, show

KIB: Final = (4, 64, 1024, 4096, 32768)
WIRE_COLUMNS: Final = (
    Column("size", "prompts", "bytes"),
    Column("tls", "TLS"),
    Column("raw_ms", "raw", "ms"),
    Column("echo_ms", "echo", "ms"),
    Column("exchange_ms", "exchange", "ms"),
    Column("exchange_p99_ms", "99 %", "ms"),
    Column("encode_ms", "encode", "ms"),
    Column("decode_ms", "decode", "ms"),
    Column("ratio", "of", "echo"),
    Column("raw_mb_s", "raw", "MB/s"),
    Column("exchange_mb_s", "exch.", "MB/s"),
    Column("relayed_ms", "relayed", "ms"),
    Column("relayed", "of", "echo"),
)
WIRE_NOTE: Final = (
    "The reference is echo: the same bytes through fednode's transport, answered at once. raw\n"
    "is grpc.aio alone, with gRPC's own TLS. Times are medians; both ends run in this process,\n"
    "and the three ways take turns. exchange - echo is the codec (encode, decode) and trust.\n"
    "echo - raw is fednode's limits and, with TLS, that TLS ends outside gRPC: each byte passes\n"
    "a socket more on both sides. relayed is an echo through a relay in a process of its own."
)


@click.command()
@click.option(
    "--kib",
    type=click.IntRange(1, 32768),
    multiple=True,
    help="Size of the prompts in KiB; may be repeated (4 to 32768).",
)
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Calls of each way; fewer for large sizes, at least 5.",
)
@output_options
def wire(kib: tuple[int, ...], calls: int, plot: Path | None, form: str) -> None:
    """Time an exchange of prompts on loopback, with TLS and without.

    An echo through the same transport is the reference, and gRPC's own echo stands beside it.
    """
    from fednode.lab.bench.wire import WireRow, measure

    rows: list[WireRow] = []
    for tls in (True, False):
        for size in kib or KIB:
            click.echo(f"{size} KiB, {'TLS' if tls else 'plain'}", err=True)
            rows.append(uvloop.run(measure(size << 10, tls, calls)))
    title = "One exchange on loopback"
    show(form, title, rows, WIRE_COLUMNS, WIRE_NOTE)
    if plot:
        panels = []
        for tls in (True, False):
            measured = [row for row in rows if row.tls is tls]
            ways = ("raw", "echo", "exchange")
            lines = {
                way: [(row.size / 1024, getattr(row, f"{way}_ms")) for row in measured]
                for way in ways
            }
            panels.append(Panel(f"median, ms, {'TLS' if tls else 'plain'}", "KiB", lines))
        draw(panels, title, plot)
