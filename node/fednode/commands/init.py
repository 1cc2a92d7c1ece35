"""`fednode init`: create a mesh, with this machine's node or with nodes on this machine alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from fednode.app.create import (
    address_here,
    create_mesh,
    mesh_key_file,
    require_new,
    site_here,
    with_port,
)
from fednode.app.join import with_own
from fednode.app.node_yaml import mesh_text, with_images, with_values, write_files
from fednode.app.plan import plan_in
from fednode.app.recommended import CASES, RECOMMENDED, Recommendation
from fednode.data.base import BUILTIN
from fednode.errors import ConfigError, DataError
from fednode.settings import trees
from fednode.settings.peers import PeerEntry, address_faults
from fednode.settings.read import Source, named, settings_in
from fednode.shipped import config_file
from fednode.terminal.paths import PATH
from fednode.terminal.progress import Shown
from fednode.transports.address import RELAY, RelayEntry
from fednode.transports.ports import free_ports

NODES_MAX: Final = 64
PORT_MAX: Final = 65_535


@click.command()
@click.argument("mesh")
@click.option("--data", type=PATH, help="Folder of images, one folder per class [built-in images].")
@click.option(
    "--others",
    type=click.Choice(list(CASES)),
    help="What the other sites' images have in common with this site's: take the policy that is "
    "recommended for that case, and say why [same-classes].",
)
@click.option("--policy", help="Take this policy with its own tuning, not the recommended one.")
@click.option("--model", help="The frozen model [fednode-mini].")
@click.option(
    "--set",
    "flags",
    multiple=True,
    help="section.key=value, such as model.pretrained=openai (the weights of --model ViT-B-16).",
)
@click.option(
    "--rounds", type=int, help="Number of rounds; 0: no end [the policy's: 0 with gda, else 100]."
)
@click.option("--wait", type=int, help="Members with whom round one begins [2].")
@click.option("--site", help="Name of this node [the host's name].")
@click.option("--address", help="HOST[:PORT] at which the other sites reach it [this machine's].")
@click.option(
    "--relay",
    "relays",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="A relay of the mesh. Without --address this node is reached through relays alone.",
)
@click.option("--nodes", type=int, help="Instead: so many nodes on this machine, in plain text.")
@click.option("--port", type=int, help="With --nodes: the port of the first; the others follow.")
def init(
    mesh: str,
    data: Path | None,
    others: str | None,
    policy: str | None,
    model: str | None,
    flags: tuple[str, ...],
    rounds: int | None,
    wait: int | None,
    site: str | None,
    address: str | None,
    relays: tuple[str, ...],
    nodes: int | None,
    port: int | None,
) -> None:
    """Create a mesh of this name, and a folder MESH with node.yaml and peers.yaml.

    The mesh key and the key of this node are made; `fednode invite SITE` then prints a link for
    each other site. With --nodes the mesh is for a try on this machine: its nodes a, b, ... speak
    plain text on loopback.
    """
    mesh, folder = named("MESH", mesh), Path(mesh)
    data = None if data == Path(BUILTIN) else data
    if policy is not None and others is not None:
        raise ConfigError("--others chooses a policy, and --policy names one: give one of the two.")
    if nodes is None:
        require_new(mesh)
    if folder.exists():
        raise ConfigError(f"There is a {folder.resolve()} already: run this in another folder.")
    case = CASES[others] if others else Recommendation(policy) if policy else RECOMMENDED
    text = settings_text(data, case, rounds)
    text = with_own(with_values(text, {"model": {"name": model}} if model else {}), flags, True)
    if nodes is not None:
        apart = {"--site": site, "--address": address, "--wait": wait, "--relay": relays or None}
        if names := [name for name, value in apart.items() if value is not None]:
            raise ConfigError(f"--nodes makes nodes on this machine alone: leave {names[0]} out.")
        _create_local(folder, text, ports_of(nodes, port), own=data is not None)
    elif port is not None:
        raise ConfigError("--port goes with --nodes: give --address HOST:PORT instead.")
    else:
        _create(folder, text, site, address, relays, 2 if wait is None else wait)
    if case.why:
        click.echo(case.why)


def _create(
    folder: Path,
    text: str,
    site: str | None,
    address: str | None,
    relays: Sequence[str],
    wait: int,
) -> None:
    """Create a mesh with the node of this machine, and say what comes next."""
    mesh, site = folder.name, named("--site", site or site_here())
    if wait < 1:
        raise ConfigError(f"--wait is {wait}; give the number of members, this node counted.")
    listed = [RelayEntry(*entry) for entry in addresses_of("--relay", relays).items()]
    if address == RELAY and not listed:
        raise ConfigError("--address relay needs --relay NAME=HOST:PORT: at which relay it waits.")
    address = with_port(address) if address else RELAY if listed else address_here()
    if faults := address_faults("--address", site, address, insecure=False):
        raise ConfigError("\n".join(faults))
    text = with_values(text, {"name": site, "rounds": {"start": {"peers": wait - 1}}})
    _check(text)
    mesh_key = create_mesh(mesh, site, address, folder)
    write_files(folder, text, mesh_text(mesh, mesh_key, [PeerEntry(site, address)], listed))
    plan_in(folder)  # finds faults
    click.echo(
        f"Founded mesh {mesh}: node {site} at {address}, settings in {folder.resolve()}.\n"
        f"Keep a copy of {mesh_key_file(mesh)} on a disk in a safe: its holder decides who is a "
        "member, and without it no key can be revoked. No daemon reads it.\nNext:"
    )
    for relay in listed:
        name, at = relay.name, relay.address
        click.echo(f"  cd {folder} && fednode invite --out folders {name}={at}   # for the relay")
    reached = "" if address == RELAY else f"        # the other sites must reach {address}"
    click.echo(
        f"  cd {folder} && fednode start{reached}\n"
        "  fednode invite SITE             # in another terminal: prints the link for a site\n"
        "  fednode sponsor SITE            # after SITE joined: it renews certificates, too, so "
        "the mesh outlives this machine"
    )


def _create_local(folder: Path, text: str, ports: Sequence[int], own: bool) -> None:
    """Write the files of a mesh on this machine, and say what comes next.

    own: whether node.yaml names the images of the first node, so that the others need their own.
    """
    entries = [PeerEntry(name_of(at), f"127.0.0.1:{port}") for at, port in enumerate(ports)]
    write_files(folder, text, mesh_text(folder.name, None, entries))
    click.echo(f"Wrote node.yaml and peers.yaml of mesh {folder.name} into {folder}. Next:")
    click.echo(f"  cd {folder}\n  fednode check --name {name_of(0)}")
    for number in range(min(len(ports), 3)):
        images = " --set data.path=FOLDER" if own and number else ""
        click.echo(f"  fednode start --name {name_of(number)}{images}")
    if own and len(ports) > 1:
        click.echo("FOLDER: the images of that node; without the option it takes those of node a.")


def addresses_of(option: str, nodes: Sequence[str], default: str = "") -> Mapping[str, str]:
    """Return addresses by name, from NAME=HOST:PORT; raise ConfigError for other words.

    default: the address of a NAME alone; "" if there must be one.
    """
    found = dict[str, str]()
    for word in nodes:
        name, _, address = word.partition("=")
        name, address = named(option, name), address or default
        if not address:
            raise ConfigError(f"{option} is {word!r}: give NAME=HOST:PORT.")
        if faults := address_faults(option, name, address, insecure=False):
            raise ConfigError("\n".join(faults))
        if name in found:
            raise ConfigError(f"{option} names {name!r} twice: names must differ.")
        found[name] = address
    return found


def name_of(number: int) -> str:
    """Return a, b, ..., z, then n27, n28, ..."""
    return chr(ord("a") + number) if number < 26 else f"n{number + 1}"


def ports_of(nodes: int, first: int | None) -> list[int]:
    """Return a port for each node: from the first on, or drawn among those that are free."""
    if not 1 <= nodes <= NODES_MAX:
        raise ConfigError(f"--nodes is {nodes}; give 1 to {NODES_MAX}.")
    if first is None:
        return sorted(free_ports(nodes))
    if not 1 <= first <= PORT_MAX + 1 - nodes:
        raise ConfigError(
            f"--port is {first}; for {nodes} nodes give 1 to {PORT_MAX + 1 - nodes}, the first of "
            "their ports."
        )
    return list(range(first, first + nodes))


def settings_text(data: Path | None, case: Recommendation, rounds: int | None) -> str:
    """Return node.yaml: data, model and policy, and every other key as a comment.

    data: None takes the built-in images, of which each node takes its block of the classes. rounds:
    None leaves the default to the policy. Raise ConfigError for a folder or a policy that does not
    exist, or too few rounds.
    """
    text = config_file("node.yaml").read_text(encoding="utf-8")
    text = with_images(text, data)
    text = with_values(text, {"policy": {"name": case.policy}})
    if rounds is not None:
        if rounds < 0:
            raise ConfigError(f"--rounds is {rounds}; give a number, or 0 for no end.")
        text = with_values(text, {"rounds": {"max": rounds}})
    return text


def _check(text: str) -> None:
    """Raise DataError or ModelError if a node could not start with its images or its model."""
    from fednode.data import load
    from fednode.learn.cache import cache_of

    settings = settings_in(Source("node.yaml", trees.read(text)[1]), os.environ)
    if settings.tuning.kind != "torch":
        return
    with Shown("No mesh was founded.") as progress:
        problems, _ = load.look(settings.data, cache_of(settings.cache), progress)
    if faults := [text for kind, text in problems if kind == "fault"]:
        raise DataError("\n".join(faults))
    from fednode.clip import model as clip  # loads torch

    clip.load(settings.model)
