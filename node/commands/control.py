"""`fednode pause | resume | leave | retune | rollback ADDRESS`: one request to a node."""

from __future__ import annotations

import asyncio

import click

from node.runtime.client import Client


def _command(name: str, text: str) -> click.Command:
    @click.command(name, help=text)
    @click.argument("address")
    def run(address: str) -> None:
        async def ask() -> str:
            async with Client() as client:
                return await client.control(address, name)

        click.echo(asyncio.run(ask()))

    return run


pause = _command("pause", "Let the node at ADDRESS finish its round and begin no other.")
resume = _command("resume", "Let the paused node at ADDRESS go on.")
leave = _command("leave", "Let the node at ADDRESS say goodbye to its peers.")
retune = _command("retune", "Let the node at ADDRESS run one more round.")
rollback = _command(
    "rollback", "Let the node at ADDRESS start its next round from its best prompts."
)
