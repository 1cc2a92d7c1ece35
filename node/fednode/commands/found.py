"""`fednode found`: make a mesh, and the settings of its first node."""

from __future__ import annotations

from pathlib import Path

import click

from fednode.app.cases import CASES, RECOMMENDED, Recommendation
from fednode.errors import ConfigError
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
    from fednode.app.founding import address_here, mesh_key_file, sign_first, site_here, with_port
    from fednode.app.founding import found as make_mesh
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
    if folder.exists():
        raise ConfigError(f"There is a {folder.resolve()} already: run this in another folder.")
    case = CASES[others] if others else Recommendation(policy) if policy else RECOMMENDED
    text = settings_text(Wanted(data=data, case=case, rounds=rounds))
    own = {"name": site, "rounds": {"start": {"peers": wait - 1}}}
    text = with_keys(text, own | ({"model": {"name": model}} if model else {}))
    identity, mesh_key = make_mesh(mesh, site, address, folder)
    listed = [RelayEntry(*relay) for relay in relays]
    peers = mesh_text(mesh, mesh_key, [site], [PeerEntry(site, address, identity.id)], listed)
    folder.mkdir(parents=True)
    for name, content in (("node.yaml", text), ("peers.yaml", peers)):
        put(folder / name, content, "folder", for_all=True)
    sign_first(make(folder / "peers.yaml", folder / "node.yaml", None, (), None))  # finds faults
    if case.why:
        click.echo(case.why)
    steps = f"  cd {folder} && fednode start        # the other sites must reach {address}\n"
    if relays:
        steps = (
            f"  fednode relay run --peers peers.yaml ...   # each relay takes {folder}/peers.yaml\n"
            f"  cd {folder} && fednode start\n"
        )
    click.echo(
        f"Founded mesh {mesh}: node {site} at {address}, settings in {folder.resolve()}.\n"
        f"Keep a copy of {mesh_key_file(mesh)} on a disk in a safe: its holder decides who is a "
        "member, and without it no key can be revoked. No daemon reads it.\n"
        f"Next:\n{steps}"
        "  fednode invite SITE             # in another terminal: prints the link for a site"
    )
