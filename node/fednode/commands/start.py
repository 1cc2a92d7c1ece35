"""`fednode start`: run one node until SIGTERM, SIGHUP or Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.assemble import run
from fednode.app.plan import NodePlan, make
from fednode.errors import ConfigError
from fednode.identity.identity import NodeIdentity
from fednode.observe import logs
from fednode.storage.store import Store
from fednode.terminal.options import PATH, PEERS, settings_here


@click.command()
@click.option("--peers", "peers_path", type=PATH, help="Who is in the mesh [./peers.yaml].")
@click.option("--config", type=PATH, help="Settings [./node.yaml]; defaults work without.")
@click.option("--name", help="Which entry of peers.yaml this node is [FEDNODE_NAME, host name].")
@click.option("--set", "flags", multiple=True, help="section.key=value, after all files.")
@click.option("--alone", is_flag=True, help="Begin without waiting for any peer.")
@click.option("--state", type=PATH, help="State directory [state_dir, ~/.local/state/fednode].")
def start(
    peers_path: Path | None,
    config: Path | None,
    name: str | None,
    flags: tuple[str, ...],
    alone: bool,
    state: Path | None,
) -> None:
    """Run one node of the mesh in peers.yaml until SIGTERM, SIGHUP or Ctrl-C."""
    settings = settings_here(config)
    if settings is not config:
        click.echo(f"The settings are those of ./{settings}.", err=True)
    if peers_path is None and not PEERS.is_file():
        raise ConfigError(
            "There is no peers.yaml here: name one with --peers, or write one with `fednode init`."
        )
    flags = (*flags, "rounds.start.peers=0") if alone else flags
    plan = make(peers_path or PEERS, settings, name, flags, state)
    begin(plan)


def begin(plan: NodePlan) -> None:
    """Run a node until SIGTERM, SIGHUP or Ctrl-C."""
    if not plan.peers.insecure:
        NodeIdentity(plan.state)  # a wrong directory gets no files
    if plan.settings.state_dir and not plan.state.exists():
        click.echo(
            f"There is no state directory {plan.state} yet: this node begins anew.", err=True
        )
    # Lock the directory first: loading the model takes seconds.
    store = Store(plan.state)
    logs.begin(plan.settings.log, plan.peers.mesh, plan.name, plan.state)
    run(plan, store)
