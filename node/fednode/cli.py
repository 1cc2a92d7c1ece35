"""The command `fednode`: find the subcommand, run it, and turn every fault into one sentence.

A subcommand is imported when it is called, so that `fednode --help` starts fast.
"""

from __future__ import annotations

import difflib
import importlib
import keyword
import os
import sys
from typing import Final

import click
from click.shell_completion import CompletionItem

from fednode import __version__
from fednode.defects import reported
from fednode.errors import FednodeError

COMMANDS: Final = {
    "init": ("fednode.commands.init", "Create a mesh: its key, and its first node's settings."),
    "invite": ("fednode.commands.invite", "Admit sites: links, approvals, folders."),
    "sponsor": ("fednode.commands.mesh_key", "Let another node of the mesh admit sites, too."),
    "remove": ("fednode.commands.mesh_key", "Revoke the key of a site, and tell the mesh."),
    "settings": ("fednode.commands.settings", "See and change the settings that a mesh shares."),
    "join": ("fednode.commands.join", "Join a mesh by a link, and run the node."),
    "check": ("fednode.commands.check", "List what is wrong before a start."),
    "start": ("fednode.commands.start", "Run one node of a mesh."),
    "status": ("fednode.commands.status", "Show how a node or a mesh is."),
    "logs": ("fednode.commands.logs", "Show what happened, and what happens."),
    "eval": ("fednode.commands.eval", "Measure a node's prompts on test images."),
    "predict": ("fednode.commands.predict", "Name what images show."),
    "explain": ("fednode.lab.commands.explain", "Show what prompts say and where they look."),
    "export": ("fednode.commands.export", "Write a node's prompts for other programs."),
    "import": ("fednode.commands.import_", "Make a state directory of prompts in a file."),
    "pause": ("fednode.commands.control", "Let a node finish its round and begin no other."),
    "resume": ("fednode.commands.control", "Let a paused node go on."),
    "leave": ("fednode.commands.control", "Let a node say goodbye to its peers."),
    "reset": ("fednode.commands.reset", "Delete what a node learned, to begin anew."),
    "relay": ("fednode_bootstrap.relay", "Connect nodes that take no connections."),
    "experiment": ("fednode.lab.commands.experiment", "Compare methods on one data set."),
    "track": ("fednode.lab.commands.track", "Write figures to TensorBoard, W&B or MLflow."),
    "simulate": ("fednode.lab.commands.simulate", "Play meshes full of faults, each by its seed."),
    "mesh": (
        "fednode.lab.commands.mesh",
        "Run several nodes here; `mesh demo` compares methods.",
    ),
}
GROUPS: Final = {
    "Try it": ("mesh",),
    "Make a mesh of sites": ("init", "invite", "join", "sponsor", "remove", "settings", "relay"),
    "Run a node": ("check", "start", "status", "logs", "pause", "resume", "leave", "reset"),
    "Use what it learned": ("eval", "predict", "explain", "export", "import"),
    "Do research": ("experiment", "simulate", "track"),
}
"""The commands by what a person wants."""
FAULT: Final = 2
DEFECT: Final = 70
INTERRUPTED: Final = 130


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{fault.message}{hint}", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        word = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), word)
        return command if isinstance(command, click.Command) else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands by the table, because click would import every command."""
        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for wanted, names in GROUPS.items():
            with formatter.section(wanted):
                formatter.write_dl([(f"{name:10}", COMMANDS[name][1]) for name in names])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-v", "--version", prog_name="fednode")
def group() -> None:
    """Tune CLIP prompts with your peers: images stay, prompts travel."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with one of the codes of node/fednode/errors.py."""
    # Before a loop listens: by default libuv sleeps after each connection that it takes, so that a
    # stranger who connects all the time would hold up the peers.
    os.environ.setdefault("UV_TCP_SINGLE_ACCEPT", "0")
    # Before gRPC is loaded: by default it prints a line for each handshake that fails, so that
    # strangers, or a peer at a wrong address, could fill the terminal.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        code = group.main(arguments, prog_name="fednode", standalone_mode=False)
    except FednodeError as fault:
        click.echo(f"fednode: {fault}", err=True)
        sys.exit(fault.exit_code)
    except click.ClickException as fault:
        fault.show()
        sys.exit(FAULT)
    except (KeyboardInterrupt, click.Abort) as fault:
        click.echo(f"fednode: stopped by Ctrl-C. {_kept(fault)}".rstrip(), err=True)
        sys.exit(INTERRUPTED)
    except Exception as fault:
        click.echo(f"fednode: {reported(fault)}", err=True)
        sys.exit(DEFECT)
    sys.exit(code if isinstance(code, int) else 0)


def _kept(fault: BaseException) -> str:
    """Return what the command says that Ctrl-C ended, such as what was kept; "" if nothing."""
    cause = fault.__cause__ if isinstance(fault, click.Abort) else fault
    return str(cause) if isinstance(cause, KeyboardInterrupt) else ""


if __name__ == "__main__":
    main()
