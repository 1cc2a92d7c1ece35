"""`fednode init`: write a node.yaml and a peers.yaml to start from."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from fednode.app.cases import CASES, RECOMMENDED, Recommendation
from fednode.app.saved import ROOT
from fednode.app.writing import ENTRIES, with_images, with_policy
from fednode.errors import AddressError, ConfigError
from fednode.shipped import config_file
from fednode.terminal.paths import PATH, PEERS

NODES_MAX: Final = 64
PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The contents of a new node.yaml, where they are not the defaults.

    rounds: None leaves the default to the policy.
    """

    data: Path | None
    case: Recommendation
    rounds: int | None


@click.command()
@click.argument("folder", type=PATH, default=".")
@click.option("--data", type=PATH, help="Folder of images, one folder per class [built-in images].")
@click.option(
    "--others",
    type=click.Choice(list(CASES)),
    help="What the peers' images have in common with this node's: take the policy that is "
    "recommended for that case, and say why [same-classes].",
)
@click.option("--policy", help="Take this policy with its own tuning, not the recommended one.")
@click.option(
    "--rounds", type=int, help="Number of rounds; 0: no end [the policy's: 0 with gda, else 100]."
)
@click.option("--nodes", type=int, default=3, show_default=True, help="Entries in peers.yaml.")
@click.option("--mesh", help="Name of the mesh [drawn].")
@click.option("--port", type=int, help="Port of the first node; the others follow [drawn].")
@click.option("--tls", is_flag=True, help="Make a key for each node, and write their ids.")
@click.option(
    "--relay",
    "relays",
    multiple=True,
    nargs=2,
    metavar="HOST:PORT ID",
    help="With --tls: list a relay, as `fednode relay key` prints it, and let every node be "
    "reached through relays alone.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def init(
    folder: Path,
    data: Path | None,
    others: str | None,
    policy: str | None,
    rounds: int | None,
    nodes: int,
    mesh: str | None,
    port: int | None,
    tls: bool,
    relays: tuple[tuple[str, str], ...],
    force: bool,
) -> None:
    """Write node.yaml and peers.yaml into FOLDER, for a mesh of nodes on this machine.

    node.yaml names the recommended policy. Unless you give them, the name of the mesh and the ports
    are drawn, so that two meshes on one machine do not meet.
    """
    from fednode.settings.read import named

    if policy is not None and others is not None:
        raise ConfigError(
            f"--others {others} chooses a policy, and --policy {policy} names one: give one of the "
            "two options."
        )
    check_relays(relays, tls)
    if not 1 <= nodes <= NODES_MAX:
        raise ConfigError(f"--nodes is {nodes}; give 1 to {NODES_MAX}.")
    mesh = f"fednode-{secrets.token_hex(3)}" if mesh is None else named("--mesh", mesh)
    for name in ("node.yaml", "peers.yaml"):
        if (folder / name).exists() and not force:
            raise ConfigError(
                f"{folder / name} is there already: use another folder, or --force to replace it."
            )
    case = CASES[others] if others else RECOMMENDED
    if policy is not None:
        case = Recommendation(policy)
    settings = settings_text(Wanted(data=data, case=case, rounds=rounds))
    ports = ports_of(nodes, port)
    ids = ids_of(nodes, mesh) if tls else {}
    texts = {"node.yaml": settings, "peers.yaml": peers_text(mesh, ports, ids, relays)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"{folder} cannot be written: {fault.strerror}.") from fault
    if case.why:
        click.echo(case.why)
    _say_next(folder, mesh, nodes, own=data is not None, tls=tls)
    if relays:
        click.echo(f"Each relay takes this file, too: fednode relay run --peers {PEERS} ...")


def check_relays(relays: Sequence[tuple[str, str]], tls: bool) -> None:
    """Raise ConfigError for relays that peers.yaml cannot list."""
    from fednode.settings.peers import RELAYS_MAX
    from fednode.transports.address import RELAY, parse

    if relays and not tls:
        raise ConfigError("--relay needs --tls, because relays carry TLS between keys alone.")
    if len(relays) > RELAYS_MAX:
        raise ConfigError(f"There are {len(relays)} times --relay; list at most {RELAYS_MAX}.")
    for address, id in relays:
        try:
            good = not parse(address).relayed and parse(f"{RELAY}:{id}").relayed
        except AddressError:
            good = False
        if not good:
            raise ConfigError(
                f"--relay {address} {id}: give host:port and the id that `fednode relay key` "
                "prints."
            )


def _say_next(folder: Path, mesh: str, nodes: int, *, own: bool, tls: bool) -> None:
    """Print what was written, and the commands that come next.

    own: whether node.yaml names the images of the first node, so that the others need their own.
    """
    click.echo(f"Wrote {folder / 'node.yaml'} and {folder / 'peers.yaml'} of mesh {mesh}. Next:")
    here = f"--peers {folder / 'peers.yaml'} --config {folder / 'node.yaml'}"
    click.echo(f"  fednode check {here} --name {name_of(0)}")
    for number in range(min(nodes, 3)):
        images = " --set data.path=FOLDER" if own and number else ""
        click.echo(f"  fednode start {here} --name {name_of(number)}{images}")
    if own and nodes > 1:
        click.echo("FOLDER: the images of that node; without the option it takes those of node a.")
    if tls:
        click.echo(
            "These commands are all that a mesh on this machine takes: the nodes' keys are below "
            f"{Path.home() / ROOT / mesh}, and they are secret. For a node on another machine, run "
            f"`fednode identity new --mesh {mesh} --name {name_of(nodes - 1)}` there, write the id "
            "that it prints and the address of that machine into peers.yaml, and give each machine "
            "this peers.yaml."
        )


def name_of(number: int) -> str:
    """Return a, b, ..., z, then n27, n28, ..."""
    return chr(ord("a") + number) if number < 26 else f"n{number + 1}"


def ports_of(nodes: int, first: int | None) -> list[int]:
    """Return a port for each node: from the first on, or drawn among those that are free."""
    from fednode.transports.ports import free_ports

    if first is None:
        return sorted(free_ports(nodes))
    if not 1 <= first <= PORT_MAX + 1 - nodes:
        raise ConfigError(
            f"--port is {first}; for {nodes} nodes give 1 to {PORT_MAX + 1 - nodes}, the first of "
            "their ports."
        )
    return list(range(first, first + nodes))


def ids_of(nodes: int, mesh: str) -> dict[str, str]:
    """Return the id of each node, by name; make the keys that are not there yet."""
    from fednode.app.network import IDENTITY
    from fednode.identity.identity import Identity

    names = [name_of(number) for number in range(nodes)]
    root = Path.home() / ROOT / mesh
    return {name: Identity(root / name / IDENTITY, mesh, name).id for name in names}


def peers_text(
    mesh: str,
    ports: list[int],
    ids: dict[str, str],
    relays: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a peers.yaml of nodes on this machine, one for each port.

    ids: by name; without them the mesh speaks plain text. relays: address and id of each; the nodes
    are reached through them alone.
    """
    head, line, _ = config_file("peers.yaml").read_text(encoding="utf-8").partition(ENTRIES)
    head = head.replace("mesh: example\n", f"mesh: {mesh}\n")
    if ids:
        head = head.replace("insecure: true\n", "# insecure: false\n")
    listed = (f'  - {{address: "{address}", id: {id}}}\n' for address, id in relays)
    if relays:
        head = head.replace("# relays: []\n", f"relays:\n{''.join(listed)}")
    entries = ""
    for number, port in enumerate(ports):
        name = name_of(number)
        id = f", id: {ids[name]}" if ids else ""
        address = "relay" if relays else f'"127.0.0.1:{port}"'
        entries += f"  - {{name: {name}, address: {address}{id}}}\n"
    return head + line + entries


def settings_text(wanted: Wanted) -> str:
    """Return node.yaml: data, model and policy, and every other key as a comment.

    All nodes share the built-in images, so without `data` each node takes its block of the classes.
    With `data` the node trains with all of its images.
    Raise ConfigError for a folder or a policy that does not exist, or too few rounds.
    """
    text = config_file("node.yaml").read_text(encoding="utf-8")
    text = with_images(text, wanted.data)
    text = with_policy(text, wanted.case.policy)
    if wanted.rounds is not None:
        if wanted.rounds < 0:
            raise ConfigError(f"--rounds is {wanted.rounds}; give a number, or 0 for no end.")
        text = re.sub(r"(?m)^  #max: .*$", f"  max: {wanted.rounds}", text)
    return text
