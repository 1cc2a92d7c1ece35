"""`fednode status ADDRESS`: how a node is, for people or as JSON."""

from __future__ import annotations

import asyncio
import json

import click
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table

from node.runtime.client import Client
from node.wire.gen import status_pb2


@click.command()
@click.argument("address")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", is_flag=True, help="Print nothing; exit 0 where the node answers.")
def status(address: str, as_json: bool, quiet: bool) -> None:
    """Show how the node at ADDRESS (host:port) is."""

    async def ask() -> status_pb2.StatusReply:
        async with Client() as client:
            return await client.status(address)

    reply = asyncio.run(ask())
    if as_json:
        shown = MessageToDict(
            reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        click.echo(json.dumps(shown, indent=2, sort_keys=True))
    elif not quiet:
        _print(Console(), reply)


def _print(console: Console, reply: status_pb2.StatusReply) -> None:
    most = f" of {reply.rounds_max}" if reply.rounds_max else ""
    alone = "; no peer answers, it goes on alone" if reply.alone else ""
    console.print(f"[bold]{reply.name}[/] in mesh {reply.mesh}, {reply.address}, {reply.policy}")
    console.print(f"{reply.life}, round {reply.round}{most}, {reply.phase}{alone}")
    if reply.metrics:
        figures = (f"{key} {reply.metrics[key]:.4g}" for key in sorted(reply.metrics))
        console.print("last round: " + ", ".join(figures))
    table = Table("peer", "address", "state", "round", "chosen", "heard", "note")
    for peer in reply.peers:
        heard = f"{peer.heard_s:.1f} s ago" if peer.heard_s >= 0 else "never"
        table.add_row(
            peer.name,
            peer.address,
            peer.state,
            str(peer.round),
            str(peer.selected),
            heard,
            peer.reason,
        )
    console.print(table)
    traffic = reply.traffic
    for way in ("in", "out"):
        messages, payload, serialized, wire = (
            getattr(traffic, f"{kind}_{way}")
            for kind in ("messages", "payload", "serialized", "wire")
        )
        console.print(
            f"{way:>3}: {messages} messages, {payload:,} B of tensors, {serialized:,} B serialized,"
            f" {wire:,} B on the wire (estimate)"
        )
    for reason in sorted(reply.refused):
        console.print(f"refused {reply.refused[reason]} messages: {reason}")
    for event in reply.events:
        console.print(f"{event.level}: {event.text}", markup=False)
