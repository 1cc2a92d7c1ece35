"""`fednode found`: make a mesh, and the settings of its first node."""

from __future__ import annotations

import os
from pathlib import Path

import click

from fednode.app.cases import CASES, RECOMMENDED, Recommendation
from fednode.errors import ConfigError, DataError
from fednode.terminal.paths import PATH


@click.command()
@click.argument("mesh")
@click.option("--data", type=PATH, required=True, help="Folder of images, one folder per class.")
@click.option(
    "--others",
    type=click.Choice(list(CASES)),
    help="What the other sites' images have in common with this site's [same-classes].",
)
@click.option("--policy", help="Take this policy, not the recommended one.")
@click.option("--model", help="The frozen model [fednode-mini].")
@click.option(
    "--set",
    "flags",
    multiple=True,
    help="section.key=value, such as model.pretrained=openai (the weights of --model ViT-B-16).",
)
@click.option("--rounds", type=int, help="Number of rounds; 0: no end [the policy's].")
@click.option("--wait", default=2, show_default=True, help="Members with whom round one begins.")
@click.option("--site", help="Name of this node [the host's name].")
@click.option("--address", help="HOST[:PORT] at which the other sites reach it [this machine's].")
@click.option(
    "--relay",
    "relays",
    multiple=True,
    nargs=2,
    metavar="HOST:PORT ID",
    help="A relay of the mesh, as `fednode relay key` prints it. Without --address this node is "
    "reached through relays alone.",
)
def found(
    mesh: str,
    data: Path,
    others: str | None,
    policy: str | None,
    model: str | None,
    flags: tuple[str, ...],
    rounds: int | None,
    wait: int,
    site: str | None,
    address: str | None,
    relays: tuple[tuple[str, str], ...],
) -> None:
    """Found a mesh of this name: make its key, this node's key, and a folder MESH of settings.

    `fednode start` in that folder runs the node, and `fednode invite SITE` prints a link for each
    other site.
    """
    from fednode.app import founding
    from fednode.app.founding import address_here, mesh_key_file, site_here, with_port
    from fednode.app.joining import with_own
    from fednode.app.plan import make
    from fednode.app.writing import mesh_text, with_keys
    from fednode.commands.init import Wanted, check_relays, settings_text
    from fednode.settings.peers import PeerEntry, RelayEntry, address_faults
    from fednode.settings.read import named
    from fednode.storage.files import put
    from fednode.transports.address import RELAY

    mesh, site = named("MESH", mesh), named("--site", site or site_here())
    if policy is not None and others is not None:
        raise ConfigError("--others chooses a policy, and --policy names one: give one of the two.")
    if wait < 1:
        raise ConfigError(f"--wait is {wait}; give the number of members, this node counted.")
    check_relays(relays, tls=True)
    if address == RELAY and not relays:
        raise ConfigError("--address relay needs --relay HOST:PORT ID: at which relay it waits.")
    address = with_port(address) if address else RELAY if relays else address_here()
    if faults := address_faults("--address", site, address, insecure=False):
        raise ConfigError("\n".join(faults))
    folder = Path(mesh)
    _require_new(mesh, folder)
    case = CASES[others] if others else Recommendation(policy) if policy else RECOMMENDED
    text = settings_text(Wanted(data=data, case=case, rounds=rounds))
    own = {"name": site, "rounds": {"start": {"peers": wait - 1}}}
    own |= {"model": {"name": model}} if model else {}
    text = with_own(with_keys(text, own), flags, founds=True)
    _check(text)
    identity, mesh_key = founding.found(mesh, site, address, folder)
    listed = [RelayEntry(*relay) for relay in relays]
    peers = mesh_text(mesh, mesh_key, [site], [PeerEntry(site, address, identity.id)], listed)
    folder.mkdir(parents=True)
    for name, content in (("node.yaml", text), ("peers.yaml", peers)):
        put(folder / name, content, "folder", for_all=True)
    make(folder / "peers.yaml", folder / "node.yaml", None, (), None)  # finds faults
    if case.why:
        click.echo(case.why)
    click.echo(
        f"Founded mesh {mesh}: node {site} at {address}, settings in {folder.resolve()}.\n"
        f"Keep a copy of {mesh_key_file(mesh)} on a disk in a safe: its holder decides who is a "
        "member, and without it no key can be revoked. No daemon reads it.\n"
        f"Next:\n{_steps(folder, address, bool(relays))}"
    )


def _steps(folder: Path, address: str, relayed: bool) -> str:
    """Return the commands that come next, as lines."""
    steps = f"  cd {folder} && fednode start        # the other sites must reach {address}\n"
    if relayed:
        steps = (
            f"  fednode relay run --peers peers.yaml ...   # each relay takes {folder}/peers.yaml\n"
            f"  cd {folder} && fednode start\n"
        )
    return (
        f"{steps}"
        "  fednode invite SITE             # in another terminal: prints the link for a site\n"
        "  fednode sponsor SITE            # after SITE joined: it renews leases, too, so the mesh "
        "outlives this machine"
    )


def _require_new(mesh: str, folder: Path) -> None:
    """Raise ConfigError if there is a mesh of this name on this machine, or a folder."""
    from fednode.app.founding import mesh_key_file

    key = mesh_key_file(mesh)
    if key.exists():
        raise ConfigError(
            f"This machine founded a mesh {mesh!r} already (its key is {key}): take another name. "
            f"To start over, as long as nobody joined, end its nodes and delete {key.parent} and "
            "the folder of its settings."
        )
    if folder.exists():
        raise ConfigError(f"There is a {folder.resolve()} already: run this in another folder.")


def _check(text: str) -> None:
    """Raise DataError or ModelError if a node could not start with its images or its model."""
    from fednode.data import load
    from fednode.learn.cache import cache_of
    from fednode.settings import trees
    from fednode.settings.read import Source, settings_in
    from fednode.terminal.progress import Shown

    settings = settings_in(Source("node.yaml", trees.read(text)[1]), os.environ)
    if settings.tuning.kind != "torch":
        return
    with Shown("No mesh was founded.") as told:
        problems, _ = load.look(settings.data, cache_of(settings.cache), told)
    if faults := [problem.text for problem in problems if problem.fatal]:
        raise DataError("\n".join(faults))
    from fednode.clip import backbone  # loads torch

    backbone.load(settings.model)
