"""Make the embedded model: `python -m tools.pretrain STAGE --work FOLDER ...`.

The stages, in order: views, teach, tower, linear, tune, hybrid, export, overlap, evaluate. If a
stage was interrupted, it continues where it stopped. The model card
(node/fednode/clip/assets/fednode-mini/MODEL_CARD.md) lists the packages and pictures that the
recipe needs, and the commands that made the shipped model.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fednode.errors import FednodeError
from tools.pretrain.wordnet import read_wordnet

WORDNET = Path("/usr/share/wordnet")


def _bench(args: argparse.Namespace) -> Any:
    from tools.pretrain.workspace import Workspace

    return Workspace(args.work, read_wordnet(args.wordnet), args.wordnet, args.start)


def views_command(args: argparse.Namespace) -> None:
    """Compute the trunk's features of every view."""
    _bench(args).compute_views(args.processes)


def teach_command(args: argparse.Namespace) -> None:
    """Compute the teacher's vectors of all texts."""
    _bench(args).teach()


def tower_command(args: argparse.Namespace) -> None:
    """Train the text tower."""
    _bench(args).tower(args.steps)


def linear_command(args: argparse.Namespace) -> None:
    """Train the linear map on the original trunk."""
    _bench(args).linear(args.steps)


def tune_command(args: argparse.Namespace) -> None:
    """Tune the trunk's last stages."""
    _bench(args).tune(args.steps, args.rate)


def hybrid_command(args: argparse.Namespace) -> None:
    """Fit the transformer on the tuned trunk."""
    _bench(args).hybrid(args.steps, args.rows)


def export_command(args: argparse.Namespace) -> None:
    """Write the model in the form that ships."""
    size = _bench(args).export(args.out)
    logging.getLogger("pretrain").info("%s: %.1f MB", args.out, size / 1e6)


def overlap_command(args: argparse.Namespace) -> None:
    """List pictures of the sources that look like images of the test sets (zip files)."""
    from tools.pretrain.overlap import report

    archives = [one for one in (args.pacs, args.caltech) if one]
    report(_bench(args).shown, archives, args.count, args.out)


def evaluate_command(args: argparse.Namespace) -> None:
    """Measure an exported model, zero-shot, on zip files of class folders."""
    from tools.pretrain.evaluate import report

    report(args.model, args.pacs, args.caltech)


STAGES: Final[Mapping[str, tuple[Callable[[argparse.Namespace], None], Mapping[str, Any]]]] = {
    "views": (views_command, {"processes": 2}),
    "teach": (teach_command, {}),
    "tower": (tower_command, {"steps": 1500}),
    "linear": (linear_command, {"steps": 1500}),
    "tune": (tune_command, {"steps": 900, "rate": 2.5e-4}),
    "hybrid": (hybrid_command, {"steps": 500, "rows": 20_000}),
    "export": (export_command, {"out": Path("node/fednode/clip/assets/fednode-mini")}),
    "overlap": (overlap_command, {"count": 12, "out": Path("overlap")}),
    "evaluate": (evaluate_command, {}),
}


def main(given: Sequence[str] | None = None) -> int:
    """Run one stage; return the exit code."""
    parser = argparse.ArgumentParser("python -m tools.pretrain", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    for name, (command, defaults) in STAGES.items():
        stage = stages.add_parser(name, help=command.__doc__)
        stage.set_defaults(command=command)
        if name in {"overlap", "evaluate"}:
            stage.add_argument("--pacs", type=Path)
            stage.add_argument("--caltech", type=Path)
        if name == "evaluate":
            stage.add_argument(
                "--model", type=Path, default=Path("node/fednode/clip/assets/fednode-mini")
            )
            continue
        stage.add_argument("--work", type=Path, required=True, help="pictures in, results out")
        stage.add_argument("--wordnet", type=Path, default=WORDNET)
        stage.add_argument("--start", type=Path, help="an exported model to start from")
        for option, value in defaults.items():
            stage.add_argument(f"--{option}", type=type(value), default=value)
    args = parser.parse_args(given)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        args.command(args)
    except FednodeError as fault:
        print(f"Error: {fault}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as missing:
        print(
            f"Error: The package {missing.name} is missing: install fednode[pretrain].",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
