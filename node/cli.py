"""The command `fednode`: find the subcommand, run it, and turn every fault into one sentence.

A subcommand is imported when it is called, so that `fednode --help` starts fast.
"""

from __future__ import annotations

import importlib
import keyword
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Final

import click

from node import __version__
from node.errors import FednodeError

COMMANDS: Final = {
    "init": ("node.commands.init", "Write settings to start from."),
    "check": ("node.commands.check", "List what is wrong before a start."),
    "start": ("node.commands.start", "Run one node of a mesh."),
    "status": ("node.commands.status", "Show how a node or a mesh is."),
    "top": ("node.commands.top", "Show a mesh live."),
    "logs": ("node.commands.logs", "Show what happened, and what happens."),
    "eval": ("node.commands.eval", "Measure a node's prompts on test images."),
    "predict": ("node.commands.predict", "Name what images show."),
    "explain": ("node.commands.explain", "Show what prompts say and where they look."),
    "export": ("node.commands.share", "Write a node's prompts for other programs."),
    "import": ("node.commands.share", "Make a state directory of prompts in a file."),
    "pause": ("node.commands.control", "Let a node finish its round and begin no other."),
    "resume": ("node.commands.control", "Let a paused node go on."),
    "leave": ("node.commands.control", "Let a node say goodbye to its peers."),
    "retune": ("node.commands.control", "Let a node run one more round."),
    "rollback": ("node.commands.control", "Start the next round from the best prompts so far."),
    "identity": ("node.commands.identity", "Show, make or replace a node's key."),
    "introducer": ("bootstrap.introducer_command", "Enrol nodes that peers.yaml does not list."),
    "experiment": ("node.commands.experiment", "Compare methods on one data set."),
    "simulate": ("node.commands.simulate", "Play meshes full of faults, each by its seed."),
    "bench": ("node.commands.bench", "Measure speed beside open_clip's own encoders."),
    "mesh": ("bootstrap.mesh_command", "Run several nodes on this machine."),
    "demo": ("bootstrap.demo_command", "Show on images whether exchanging prompts helps."),
}
FAULT: Final = 2
DEFECT: Final = 70
INTERRUPTED: Final = 130


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _exists(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _exists(cmd_name):
            return None
        word = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        found = getattr(importlib.import_module(COMMANDS[cmd_name][0]), word)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _exists(name: str) -> bool:
    module = COMMANDS[name][0]
    return (Path(__file__).resolve().parent.parent / f"{module.replace('.', '/')}.py").exists()


@click.group(cls=_Lazy)
@click.version_option(__version__, prog_name="fednode")
def group() -> None:
    """Tune CLIP prompts with your peers: images stay, prompts travel."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with one of the codes of node/errors.py."""
    try:
        code = group.main(arguments, prog_name="fednode", standalone_mode=False)
    except FednodeError as fault:
        click.echo(f"fednode: {fault}", err=True)
        sys.exit(fault.exit_code)
    except click.ClickException as fault:
        fault.show()
        sys.exit(FAULT)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except Exception as fault:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fednode-crash-", suffix=".txt", delete=False
        ) as report:
            report.write(traceback.format_exc())
        click.echo(
            f"fednode: a defect of fednode itself ({type(fault).__name__}: {fault}); the details "
            f"are in {report.name}: please report them.",
            err=True,
        )
        sys.exit(DEFECT)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
