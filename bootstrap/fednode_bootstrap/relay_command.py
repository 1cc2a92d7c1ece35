"""`fednode relay`: connect nodes that take no connections."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
import uvloop

from fednode.core import foreign
from fednode.identity import keys
from fednode.terminal.groups import Whole
from fednode.terminal.paths import PATH
from fednode.terminal.stop import call_at_end
from fednode_bootstrap.relay_host import key_in, serve

STATE = click.option("--state", type=PATH, required=True, help="Folder of the relay's key.")


@click.group(cls=Whole)
def relay() -> None:
    """Connect nodes that take no connections; a relay cannot read what it carries."""


@relay.command()
@STATE
@click.option("--peers", type=PATH, required=True, help="peers.yaml: whose keys are admitted.")
@click.option("--listen", default="0.0.0.0:443", show_default=True, help="Where nodes connect.")
@click.option("--metrics", help="host:port for /metrics and /healthz [none].")
@click.option("--mbit", default=0.0, help="Megabits a second that each key may send [no limit].")
def run(state: Path, peers: Path, listen: str, metrics: str | None, mbit: float) -> None:
    """Serve one mesh until SIGTERM, SIGHUP or Ctrl-C; then streams end for half a minute."""

    def say(text: str) -> None:
        click.echo(foreign.line(f"{time.strftime('%H:%M:%S')} {text}"))

    async def main() -> None:
        stop = asyncio.Event()
        call_at_end(lambda _: stop.set())
        await serve(peers, state, listen, stop, say, metrics, mbit)

    uvloop.run(main())


@relay.command()
@STATE
@click.option("--address", default="HOST:PORT", help="Where nodes reach the relay.")
def key(state: Path, address: str) -> None:
    """Print the lines of peers.yaml for this relay; make its key if there is none."""
    click.echo("relays:")
    click.echo(f'  - {{address: "{address}", id: {keys.node_id(key_in(state))}}}')
