"""Run the stages of pretraining: pack, train, export, evaluate.

The model card, node/clip/assets/fednode-mini/MODEL_CARD.md, has the full command lines.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.pretrain.wordnet import read_wordnet
from node.errors import ConfigError, DataError, FednodeError

if TYPE_CHECKING:  # torch is imported only by the commands that need it
    import torch

    from bootstrap.pretrain.batches import Corpus

log = logging.getLogger("pretrain")
WORDNET = Path("/usr/share/wordnet")


def pack_command(args: argparse.Namespace) -> None:
    """Pack every source whose folder was given."""
    from bootstrap.pretrain.pack import pack
    from bootstrap.pretrain.sources import READERS

    words = read_wordnet(args.wordnet)
    given = {name: getattr(args, name.replace("-", "_")) for name in READERS}
    if not any(given.values()):
        raise DataError("no source given: name at least one folder, such as --cifar100 DIR")
    for name, folder in given.items():
        if folder is None:
            continue
        for source in READERS[name](folder, words):
            log.info("%s: %d rows", source.name, pack(source, args.packed))


def train_command(args: argparse.Namespace) -> None:
    """Train, from the start or from the checkpoint of the same output folder."""
    import torch

    from bootstrap.pretrain.checkpoint import load_checkpoint
    from bootstrap.pretrain.export import starting_point
    from bootstrap.pretrain.train import Settings, Trainer, parse_stages, run

    if args.minutes <= 0 and args.steps <= 0:
        raise ConfigError("a run needs a budget: give --minutes or --steps above 0")
    torch.set_num_threads(args.threads)
    settings = Settings(
        seed=args.seed,
        minutes=args.minutes,
        steps=args.steps,
        muon_rate=args.muon_rate,
        adam_rate=args.adam_rate,
        stages=parse_stages(args.stages) if args.stages else Settings().stages,
    )
    trainer = Trainer(_corpus(args), settings, _device(args.device))
    checkpoint = args.out / "checkpoint.pt"
    if args.resume:
        trainer.restore(load_checkpoint(checkpoint))
    elif checkpoint.exists():
        raise ConfigError(
            f"{checkpoint} exists: add --resume to continue it, or give another --out"
        )
    elif args.init:
        trainer.start_from(starting_point(args.init))
    log.info("%d token rows, %d concepts", len(trainer.corpus.index), len(trainer.bank))
    run(trainer, args.out)


def export_command(args: argparse.Namespace) -> None:
    """Write the shipped form of a checkpoint."""
    from bootstrap.pretrain.checkpoint import load_checkpoint
    from bootstrap.pretrain.export import export

    size = export(load_checkpoint(args.checkpoint), args.out, args.image_size)
    log.info("wrote %s: %.1f MB", args.out, size / 1e6)


def evaluate_command(args: argparse.Namespace) -> None:
    """Print zero-shot accuracy of an exported model as Markdown table rows."""
    import torch

    from bootstrap.pretrain.report import held_out_rows, zero_shot_rows

    torch.set_num_threads(args.threads)
    rows = zero_shot_rows(args.model, args.pacs, args.caltech)
    if args.packed:
        rows = [*held_out_rows(args.model, _corpus(args)), *rows]
    for row in rows:
        sys.stdout.write(row + "\n")


def _corpus(args: argparse.Namespace) -> Corpus:
    from open_clip.tokenizer import SimpleTokenizer

    from bootstrap.pretrain.batches import Corpus
    from bootstrap.pretrain.captions import Captioner

    return Corpus(args.packed, read_wordnet(args.wordnet), Captioner(SimpleTokenizer().encode))


def _device(name: str) -> torch.device:
    import torch

    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"no GPU is usable here for --device {name}: use --device cpu")
    return torch.device(name)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(prog="python -m bootstrap.pretrain", description=__doc__)
    top.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, help_text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help_text)
        sub.set_defaults(function=function)
        sub.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of data.noun")
        sub.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
        return sub

    pack = command("pack", pack_command, "read image files once into arrays")
    pack.add_argument("--packed", type=Path, required=True, help="folder to write")
    for name in (
        *("tiny-imagenet", "cifar100", "cifar10"),
        *("flickr8k", "noto-emoji", "imagenet-samples"),
    ):
        pack.add_argument(f"--{name}", type=Path, help="its folder, see bootstrap/pretrain/sources")

    train = command("train", train_command, "train for a budget of minutes or steps")
    train.add_argument("--packed", type=Path, required=True)
    train.add_argument("--out", type=Path, required=True, help="checkpoint.pt, training-log.csv")
    train.add_argument("--minutes", type=float, default=60.0, help="budget, all sessions together")
    train.add_argument("--steps", type=int, default=0, help="budget in steps, instead of minutes")
    train.add_argument("--resume", action="store_true", help="continue the checkpoint of --out")
    train.add_argument(
        "--init", type=Path, help="begin from a checkpoint's or exported folder's weights"
    )
    train.add_argument("--stages", help="until:size:batch,... (default 0.5:32:512,...)")
    train.add_argument("--muon-rate", type=float, default=0.02)
    train.add_argument("--adam-rate", type=float, default=1e-3)
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--device", default="cpu", help="cpu or cuda[:N]")

    export = command("export", export_command, "write config.json and model.safetensors")
    export.add_argument("--checkpoint", type=Path, required=True)
    export.add_argument("--out", type=Path, required=True)
    export.add_argument("--image-size", type=int, default=64, help="pixels, a multiple of 8")

    evaluate = command("evaluate", evaluate_command, "print zero-shot accuracy")
    evaluate.add_argument("--model", type=Path, required=True, help="an exported folder")
    evaluate.add_argument("--packed", type=Path, help="also measure the held-out parts")
    evaluate.add_argument("--pacs", type=Path, help="zip of <domain>/<class>/<file>")
    evaluate.add_argument("--caltech", type=Path, help="zip of 101_ObjectCategories/<class>/")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a fault becomes one sentence and exit code 2."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args = parser().parse_args(argv)
    try:
        args.function(args)
    except FednodeError as fault:
        sys.stderr.write(f"pretrain: {fault}\n")
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
