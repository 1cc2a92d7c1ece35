"""`fednode relay`: connect nodes that take no connections."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click
import uvloop

from fednode.core import foreign
from fednode.terminal.paths import PATH
from fednode.terminal.stop import call_at_end
from fednode_bootstrap.relay_host import serve


@click.command()
@click.option(
    "--state", type=PATH, required=True, help="The relay's folder, of `fednode invite --out`."
)
@click.option("--peers", type=PATH, help="peers.yaml of the mesh [the one in the folder].")
@click.option("--listen", default="0.0.0.0:443", show_default=True, help="Where nodes connect.")
@click.option("--metrics", help="host:port for /metrics and /healthz [none].")
def relay(state: Path, peers: Path | None, listen: str, metrics: str | None) -> None:
    """Connect nodes that take no connections; a relay cannot read what it carries.

    It serves one mesh until SIGTERM, SIGHUP or Ctrl-C; then streams end for half a minute.
    """

    def say(text: str) -> None:
        click.echo(foreign.line(f"{time.strftime('%H:%M:%S')} {text}"))

    async def main() -> None:
        stop = asyncio.Event()
        call_at_end(lambda _: stop.set())
        await serve(state, peers or state / "peers.yaml", listen, stop, say, metrics)

    uvloop.run(main())
