"""`fednode settings`: show the settings that a mesh shares, and take over those of a member."""

from __future__ import annotations

import click

from fednode.app.create import folder_here, node_here
from fednode.app.pull import ask, pulled, write
from fednode.settings.shared import lines, shared_tree
from fednode.terminal.options import confirm


@click.group(invoke_without_command=True)
@click.pass_context
def settings(context: click.Context) -> None:
    """Show the settings that the nodes of the mesh share, as this node's files have them.

    Run it in the node's folder (peers.yaml and node.yaml).
    """
    if context.invoked_subcommand is None:
        click.echo("\n".join(lines(shared_tree(node_here().settings))))


@settings.command()
@click.argument("peer", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def pull(peer: str | None, yes: bool) -> None:
    """Write the shared settings of the member PEER into node.yaml.

    Without PEER the first other node of peers.yaml is asked: at a site that joined by a link, the
    node that admitted it. The command shows what differs, and asks. The old file is kept beside the
    new one. A node that runs goes by the new file after a restart. The exit code is 1 if you answer
    no.
    """
    folder, plan = folder_here(), node_here()
    config = folder / "node.yaml"
    name, tree = ask(plan, folder / "peers.yaml", peer)
    found, text = pulled(plan, config, name, tree)
    if not found:
        click.echo(f"{plan.name} has the shared settings of {name} already: nothing is to be done.")
        return
    click.echo("\n".join(found))
    if not yes:
        question = f"Write these settings of {name} into {config}?"
        confirm(question, "write them", "Nothing was written.")
    before = write(config, text)
    kept = "" if before is None else f" The file before is {before}."
    click.echo(
        f"{config} has the shared settings of {name}.{kept} `fednode check` says whether the "
        "rounds begin anew with them. Restart the node: fednode start"
    )
