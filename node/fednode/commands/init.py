"""`fednode init`: create a mesh, with this machine's node or with nodes on this machine alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from fednode.app.create import (
    address_here,
    create_mesh,
    mesh_key_file,
    require_new,
    site_here,
    with_port,
)
from fednode.app.node_yaml import node_text, with_values, write_files
from fednode.app.plan import plan_in
from fednode.data.base import BUILTIN
from fednode.errors import ConfigError
from fednode.settings import trees
from fednode.settings.peers import PeerEntry, Peers, address_faults
from fednode.settings.read import RECOMMENDED, Source, named, settings_in
from fednode.terminal.options import PATH
from fednode.terminal.progress import Shown
from fednode.transports.address import RELAY, RelayEntry
from fednode.transports.ports import free_ports

NODES_MAX: Final = 64
WHY: Final = (
    f"Recommended: {RECOMMENDED}. Against tuning prompts alone it gained +5.6 points (95 % "
    "interval +5.0 to +6.2) where nodes have the same classes and kind of images (Caltech-101, "
    "five seeds), and +0.7 (+0.1 to +1.3) against the same classifier without peers. Members learn "
    "your class names, how many images each class has, and the mean of their features; `--policy "
    "fedpgp` tunes prompts instead."
)


@click.command()
@click.argument("mesh")
@click.option("--data", type=PATH, help="Folder of images, one folder per class [built-in images].")
@click.option("--policy", help="The policy, with its own tuning [the recommended one].")
@click.option("--model", help="The frozen model [fednode-mini].")
@click.option(
    "--set",
    "flags",
    multiple=True,
    help="section.key=value, such as model.pretrained=openai (the weights of --model ViT-B-16).",
)
@click.option(
    "--rounds",
    type=click.IntRange(0),
    help="Number of rounds; 0: no end [the policy's: 0 with gda, else 100].",
)
@click.option("--wait", type=click.IntRange(1), help="Members with whom round one begins [2].")
@click.option("--site", help="Name of this node [the host's name].")
@click.option("--address", help="HOST[:PORT] at which the other sites reach it [this machine's].")
@click.option(
    "--relay",
    "relays",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="A relay of the mesh. Without --address this node is reached through relays alone.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    help="Instead: so many nodes on this machine, in plain text.",
)
def init(
    mesh: str,
    data: Path | None,
    policy: str | None,
    model: str | None,
    flags: tuple[str, ...],
    rounds: int | None,
    wait: int | None,
    site: str | None,
    address: str | None,
    relays: tuple[str, ...],
    nodes: int | None,
) -> None:
    """Create a mesh of this name, and a folder MESH with node.yaml and peers.yaml.

    The mesh key and the key of this node are made; `fednode invite SITE` then prints a link for
    each other site. With --nodes the mesh is for a try on this machine: its nodes a, b, ... speak
    plain text on loopback.
    """
    mesh, folder = named("MESH", mesh), Path(mesh)
    data = None if data == Path(BUILTIN) else data
    if nodes is None:
        require_new(mesh)
    if folder.exists():
        raise ConfigError(f"There is a {folder.resolve()} already: run this in another folder.")
    tree: dict[str, Any] = {"policy": {"name": policy or RECOMMENDED}}
    tree |= {} if rounds is None else {"rounds": {"max": rounds}}
    tree |= {} if model is None else {"model": {"name": model}}
    text = node_text(tree, data, flags, founds=True)
    if nodes is not None:
        apart = {"--site": site, "--address": address, "--wait": wait, "--relay": relays or None}
        if names := [name for name, value in apart.items() if value is not None]:
            raise ConfigError(f"--nodes makes nodes on this machine alone: leave {names[0]} out.")
        _create_local(folder, text, sorted(free_ports(nodes)), own=data is not None)
    else:
        _create(folder, text, site, address, relays, 2 if wait is None else wait)
    if policy is None and trees.at(trees.read(text)[1], ("policy", "name")) == RECOMMENDED:
        click.echo(WHY)


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
    listed = tuple(RelayEntry(*entry) for entry in addresses_of("--relay", relays).items())
    if address == RELAY and not listed:
        raise ConfigError("--address relay needs --relay NAME=HOST:PORT: at which relay it waits.")
    address = with_port(address) if address else RELAY if listed else address_here()
    if faults := address_faults("--address", site, address, insecure=False):
        raise ConfigError("\n".join(faults))
    text = with_values(text, {"name": site, "rounds": {"start": {"peers": wait - 1}}})
    _check(text)
    mesh_key = create_mesh(mesh, site, folder)
    entries = (PeerEntry(site, address),)
    write_files(folder, text, Peers(mesh, entries, mesh_key=mesh_key, relays=listed))
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
    entries = tuple(PeerEntry(name_of(at), f"127.0.0.1:{port}") for at, port in enumerate(ports))
    write_files(folder, text, Peers(folder.name, entries, insecure=True))
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
            raise ConfigError(f"{option} names {name!r} twice: a node has one address.")
        found[name] = address
    return found


def name_of(number: int) -> str:
    """Return a, b, ..., z, then n27, n28, ..."""
    return chr(ord("a") + number) if number < 26 else f"n{number + 1}"


def _check(text: str) -> None:
    """Raise DataError or ModelError if a node could not start with its images or its model."""
    from fednode.data.load import load
    from fednode.learn.cache import cache_of

    settings = settings_in(Source("node.yaml", trees.read(text)[1]), os.environ)
    if settings.tuning.kind != "torch":
        return
    with Shown("No mesh was founded.") as progress:
        load(settings.data, cache_of(settings.cache), progress)
    from fednode.clip import model as clip  # loads torch

    clip.load(settings.model)
