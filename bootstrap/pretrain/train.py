"""Train the small CLIP for a budget of minutes (or steps), resumable at any moment.

The learning rate follows the share of the budget that is spent, so a run on a busy machine still
ends with it at zero. Resolution grows with that share too: most steps are cheap ones.
"""

from __future__ import annotations

import csv
import logging
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from open_clip.model import CLIP

from bootstrap.pretrain.batches import Corpus
from bootstrap.pretrain.checkpoint import save_checkpoint
from bootstrap.pretrain.evaluate import TEMPLATE, held_out_accuracy
from bootstrap.pretrain.model import CONFIG, build, encode_texts, matrices
from bootstrap.pretrain.muon import Muon
from bootstrap.pretrain.objective import Losses, Objective
from node.errors import ConfigError, ModelError

log = logging.getLogger(__name__)
LOG_FIELDS = (
    *("step", "minutes", "images", "size", "loss", "concept", "caption", "noun", "style", "rate"),
    *("tiny_imagenet", "cifar100", "cifar10"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Train at `size` pixels with `batch` images a step until `until` (0..1) of the budget."""

    until: float
    size: int
    batch: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What defines a run; all of it is stored in the checkpoint."""

    seed: int = 0
    minutes: float = 60.0  # budget; ignored where steps is not 0
    steps: int = 0
    muon_rate: float = 0.02
    adam_rate: float = 1e-3
    warmup: int = 60  # steps
    average: float = 0.995  # decay of the moving average that is exported
    fresh: int = 144  # concept texts encoded in a step
    nouns: int = 48
    save_minutes: float = 4.0
    stages: tuple[Stage, ...] = (Stage(0.5, 32, 512), Stage(0.82, 48, 384), Stage(1.0, 64, 256))

    def stage(self, progress: float) -> Stage:
        """Return the stage of a share of the budget."""
        return next((s for s in self.stages if progress < s.until), self.stages[-1])


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Parse "until:size:batch,..." such as "0.5:32:512,1:64:256"."""
    try:
        stages = tuple(
            Stage(float(a), int(b), int(c))
            for a, b, c in (part.split(":") for part in text.split(","))
        )
    except ValueError as fault:
        raise ConfigError(
            f"stages {text!r} are not until:size:batch[,...], for example 0.5:32:512,1:64:256"
        ) from fault
    rising = [s.until for s in stages] == sorted({s.until for s in stages})
    patch = CONFIG["vision_cfg"]["patch_size"]
    if not rising or any(s.size % patch or s.size <= 0 or s.batch <= 0 for s in stages):
        raise ConfigError(
            f"stages {text!r}: shares must rise, sizes be multiples of {patch}, batches positive"
        )
    return stages


class Trainer:
    """One run: the model, its moving average, the optimizers and the feature bank."""

    def __init__(self, corpus: Corpus, settings: Settings, device: torch.device) -> None:
        torch.manual_seed(settings.seed)
        self.corpus, self.settings, self.device = corpus, settings, device
        self.model: CLIP = build(CONFIG, len(corpus.index)).to(device)
        self.average = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        hidden, plain, free = matrices(self.model)
        self.muon = Muon(hidden, lr=settings.muon_rate)
        self.adam = torch.optim.AdamW(
            [{"params": plain, "weight_decay": 0.05}, {"params": free, "weight_decay": 0.0}],
            lr=settings.adam_rate,
            betas=(0.9, 0.98),
            fused=True,
        )
        self.objective = Objective(corpus, device)
        width = CONFIG["embed_dim"]
        bank = torch.randn(len(corpus.concepts.offsets), width, device=device)
        self.bank = torch.nn.functional.normalize(bank, dim=1)
        self.step, self.images, self.seconds = 0, 0, 0.0

    @property
    def progress(self) -> float:
        """Return the share of the budget that is spent, 0..1."""
        if self.settings.steps:
            return min(1.0, self.step / self.settings.steps)
        return min(1.0, self.seconds / 60 / self.settings.minutes)

    def train_step(self) -> Losses:
        """Take one optimizer step on a batch drawn from (seed, step)."""
        began = time.monotonic()
        settings, progress = self.settings, self.progress
        stage = settings.stage(progress)
        rng = np.random.default_rng([settings.seed, self.step])
        gen = torch.Generator().manual_seed(int(rng.integers(2**62)))
        batch = self.corpus.draw(stage.batch, settings.fresh, settings.nouns, rng)
        loss, losses = self.objective(self.model, self.bank, batch, stage.size, gen)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        rate = self.rate()
        for optimizer, peak in ((self.muon, settings.muon_rate), (self.adam, settings.adam_rate)):
            for group in optimizer.param_groups:
                group["lr"] = peak * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        decay = min(settings.average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.average[name].lerp_(value, 1 - decay)
        self.step += 1
        self.images += len(batch.labels)
        self.seconds += time.monotonic() - began
        return losses

    def rate(self) -> float:
        """Return the share of the peak learning rate: a short warm-up, then straight to zero."""
        return min(1.0, (self.step + 1) / self.settings.warmup) * (1.0 - self.progress)

    def state(self) -> dict[str, Any]:
        """Return all that a resumed run needs, as tensors and plain values."""
        return {
            "settings": asdict(self.settings),
            "index": torch.from_numpy(self.corpus.index),
            "concepts": torch.from_numpy(self.corpus.concepts.offsets),
            "model": self.model.state_dict(),
            "average": self.average,
            "bank": self.bank,
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "step": self.step,
            "images": self.images,
            "seconds": self.seconds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue a run from its checkpoint, exactly where it was."""
        same = torch.equal(state["index"], torch.from_numpy(self.corpus.index))
        if not same or not torch.equal(
            state["concepts"], torch.from_numpy(self.corpus.concepts.offsets)
        ):
            raise ModelError(
                "the checkpoint was trained on other data: pack the same sources, or begin a new "
                "run from its weights with --init instead of --resume"
            )
        self.model.load_state_dict(state["model"])
        self.average = {k: v.to(self.device) for k, v in state["average"].items()}
        self.bank = state["bank"].to(self.device)
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.images = state["images"]

    @torch.no_grad()
    def start_from(self, state: dict[str, Any]) -> None:
        """Begin a new run from the averaged weights of another, whatever data it had.

        Tokens that the other run did not know start from the mean of those it knew.
        """
        weights = {k: v.to(self.device) for k, v in state["average"].items()}
        rows = weights["token_embedding.weight"]
        known = {int(token): row for row, token in enumerate(state["index"])}
        at = torch.tensor([known.get(int(t), len(rows)) for t in self.corpus.index])
        table = torch.cat([rows, rows.mean(dim=0, keepdim=True)])
        weights["token_embedding.weight"] = table[at.to(self.device)]
        self.model.load_state_dict(weights)
        self.average = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        make = self.corpus.captioner
        texts = [make.compose(TEMPLATE, lemmas[0]) for lemmas in self.corpus.concepts.lemmas]
        parts = [texts[at : at + 256] for at in range(0, len(texts), 256)]
        self.bank = torch.cat(
            [encode_texts(self.model, self.corpus.rows(part).to(self.device)) for part in parts]
        )


def run(trainer: Trainer, out: Path) -> None:
    """Train to the end of the budget; log and save every few minutes and at its end.

    SIGTERM and SIGINT end the run after the step in hand; a kill loses the minutes since the last
    checkpoint.
    """
    out.mkdir(parents=True, exist_ok=True)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    saved = time.monotonic()
    recent: list[Losses] = []
    while trainer.progress < 1.0 and not stopping.is_set():
        stage = trainer.settings.stage(trainer.progress)
        recent.append(trainer.train_step())
        due = time.monotonic() - saved >= 60 * trainer.settings.save_minutes
        if due or stopping.is_set() or trainer.progress >= 1.0:
            save_checkpoint(out / "checkpoint.pt", trainer.state())
            write_log(out / "training-log.csv", trainer, stage.size, recent)
            recent, saved = [], time.monotonic()


def write_log(path: Path, trainer: Trainer, size: int, recent: Sequence[Losses]) -> None:
    """Append a row: where the run stands, mean losses since the last row, held-out accuracy."""
    scores = held_out_accuracy(trainer.corpus, trainer.average, size, trainer.device, limit=1000)
    parts = ("total", "concept", "caption", "noun", "style")
    means = [float(np.mean([getattr(r, p) for r in recent])) for p in parts]
    row: list[Any] = [trainer.step, f"{trainer.seconds / 60:.1f}", trainer.images, size]
    row += [f"{m:.4f}" for m in means] + [f"{trainer.rate():.4f}"]
    row += [f"{scores.get(n, float('nan')):.4f}" for n in ("tiny-imagenet", "cifar100", "cifar10")]
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(LOG_FIELDS)
        writer.writerow(row)
    log.info("%s", " ".join(f"{k}={v}" for k, v in zip(LOG_FIELDS, row, strict=True)))
