"""Clip the results of training, add Gaussian noise, and keep account of the privacy spent.

    released = initial + clip(trained - initial, clip) + N(0, (noise * clip)^2)

A node sends, stores and continues from `released` alone, so all of this is as private as `released`
(post-processing). All arrays get noise and are sent: which of them training changed may depend on
the images, such as the domains of DiPrompT. The optimizer's state never leaves the node. `initial`
is the node's initial prompts. They are public: they depend on the run's seed and, with tuning.start
own, on the node's name, but on no image.

The unit of the guarantee is the message: it compares the node's whole data set with any other data
set, for one released result, composed over all releases of the node's life. Replacing the data set
moves a clipped result by at most 2 * clip, so the Gaussian mechanism's noise multiplier is noise /
2. There is no guarantee per image; that would take clipped per-example gradients.

The account, privacy.json, holds the clip and the noise of each release. So each release counts with
its own noise, even if the settings change later. A release without clipping is recorded, too: after
such a release no epsilon holds. The account also says whether the node is paused until its operator
decides (node/fednode/core/starts.py).
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from fednode.core.types import EMPTY, MEASURE, Account, Job, Report, Tensors
from fednode.errors import ConfigError, StateError
from fednode.learn.settings import PrivacySettings
from fednode.storage.disk import content_of, put

Releases = Mapping[tuple[float | None, float], int]
"""Number of released results by (clip, noise); clip is None for releases without clipping, and for
releases whose clipping and noise are not known."""

UNKNOWN: Final = (None, 0.0)
ACCOUNT: Final = "privacy.json"
ELSEWHERE: Final = "state directory with --state"


class Privacy:
    """What a node's host does to each result of training before it hands it on, with the account.

    If privacy.clip is None, results are returned unchanged, and the account records that.
    """

    def __init__(
        self,
        settings: PrivacySettings,
        initial: Tensors,
        folder: Path,
        generator: np.random.Generator | None = None,
        has_rounds: bool = False,
    ) -> None:
        """Read the account in `folder`.

        initial: the node's initial prompts. generator: of the noise; None seeds it from the
        system's entropy. has_rounds: the folder has adopted rounds. Raise ConfigError if the
        accountant's library is missing, StateError if there are rounds and no account.
        """
        self._settings, self._initial, self._folder = settings, initial, folder
        self._releases, self._undecided = read_account(folder)
        self._guard = threading.Lock()
        self._generator = np.random.default_rng() if generator is None else generator
        if settings.clip is None:
            return
        epsilon([(settings.noise, 1)], settings.delta)  # raises now if the library is missing
        path = folder / ACCOUNT
        if path.exists():
            return
        if has_rounds:
            raise StateError(
                f"{path} is missing, and this state directory has rounds, so what they released is "
                "not known: restore it from a backup. Or give another directory with --state: its "
                "epsilon begins at 0 and leaves out what these rounds released."
            )
        write_account(folder, {})  # not every round releases something

    @property
    def account(self) -> Account:
        """What the account says."""
        return Account(sum(self._releases.values()), self._undecided)

    @property
    def note(self) -> str:
        """A sentence on the privacy spent so far; "" if results are not clipped."""
        return "" if self._settings.clip is None else describe(self._settings, self._releases)

    def missed(self, count: int, undecided: str) -> None:
        """Count releases that the node's state does not know of: with which noise is not known.

        undecided: why the node is paused until its operator decides. Raise StateError if the
        account cannot be written.
        """
        with self._guard:
            self._write(UNKNOWN, count, undecided)

    def release(self, job: Job, report: Report, measure: Callable[[Job], Report]) -> Report:
        """Count a result of training, and return it clipped and with noise.

        measure: runs a job of stage MEASURE. Validation and test metrics are measured on the
        returned tensors, not on the trained ones.
        """
        if job.stage == MEASURE:
            return report
        clip, noise = self._settings.clip, self._settings.noise
        # Count before the release: a crash in between counts one release too many, never one too
        # few. One release without clipping already voids the guarantee.
        key = UNKNOWN if clip is None else (clip, noise)
        with self._guard:
            if clip is not None or not self._releases.get(UNKNOWN):
                self._write(key, 1, self._undecided)
        if clip is None:
            return report
        released = clip_and_noise(report.tensors, self._initial, clip, noise, self._generator)
        report = replace(report, tensors=released, changed=tuple(released))
        if not job.measure:
            return report
        measured = measure(replace(job, stage=MEASURE, tensors=released, carry=EMPTY)).metrics
        return replace(report, metrics={**report.metrics, **measured})

    def _write(self, key: tuple[float | None, float], count: int, undecided: str) -> None:
        releases = dict(self._releases)
        if count:
            releases[key] = releases.get(key, 0) + count
        write_account(self._folder, releases, undecided)
        self._releases, self._undecided = releases, undecided


def clip_and_noise(
    trained: Tensors, initial: Tensors, clip: float, noise: float, generator: np.random.Generator
) -> Tensors:
    """Return initial + the change, clipped to length `clip` over all arrays together, + noise."""
    changes = {
        name: array.astype(np.float64) - initial.get(name, np.zeros_like(array))
        for name, array in trained.items()
    }
    length = math.sqrt(sum(float(np.square(change).sum()) for change in changes.values()))
    factor = min(1.0, clip / length) if length > 0 else 1.0
    return Tensors(
        {
            name: initial.get(name, np.zeros_like(trained[name]))
            + factor * change
            + generator.normal(0.0, noise * clip, change.shape)
            for name, change in changes.items()
        }
    )


def epsilon(releases: Iterable[tuple[float, int]], delta: float) -> float:
    """Return the epsilon of releases by Renyi accounting (Mironov, CSF 2017).

    releases: pairs of a noise (in clips) and the number of results released with it. Raise
    ConfigError if dp-accounting is not installed.
    """
    groups = [(noise, count) for noise, count in releases if count]
    if not groups:
        return 0.0
    try:
        from dp_accounting import GaussianDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError as missing:
        raise ConfigError(
            "privacy.clip is set, which takes the library dp-accounting to keep account: install "
            "it with `pip install fednode[privacy]`, or leave privacy.clip null."
        ) from missing
    accountant = RdpAccountant()
    for noise, count in groups:
        accountant.compose(GaussianDpEvent(noise / 2.0), count)
    return float(accountant.get_epsilon(delta))


def describe(settings: PrivacySettings, releases: Releases) -> str:
    """Describe the privacy spent, for people; never claim more than holds."""
    if any(clip is None for clip, _ in releases):
        return (
            "privacy: no epsilon holds for this node's data set: it released results without "
            "clipping and noise, or with a noise that this account does not know, and what members "
            "heard of them stays with them"
        )
    spent = epsilon([(noise, count) for (_, noise), count in releases.items()], settings.delta)
    kinds = [
        f"{count:,} with clip {clip:g} and noise {noise:g}"
        for (clip, noise), count in sorted(releases.items())
    ]
    return (
        f"privacy: epsilon {spent:.3g} at delta {settings.delta:g} for this node's data set as a "
        f"whole, per message, over {sum(releases.values()):,} messages "
        f"({', '.join(kinds) or 'none yet'}); this is no guarantee for single images"
    )


def write_account(folder: Path, releases: Releases, undecided: str = "") -> None:
    """Write the account of all releases; raise StateError if the file cannot be written."""
    rows = [
        {"clip": clip, "noise": noise, "count": count} for (clip, noise), count in releases.items()
    ]
    put(folder / ACCOUNT, json.dumps({"releases": rows, "undecided": undecided}) + "\n", ELSEWHERE)


def read_account(folder: Path) -> tuple[Releases, str]:
    """Return all releases so far, and why the node is paused until its operator decides, or "".

    Raise StateError if the account cannot be read.
    """
    path = folder / ACCOUNT
    if not path.exists():
        return {}, ""
    try:
        account: Any = json.loads(content_of(path))
        releases: dict[tuple[float | None, float], int] = {}
        for row in account["releases"]:
            clip = None if row["clip"] is None else float(row["clip"])
            releases[clip, float(row["noise"])] = int(row["count"])
        return releases, str(account.get("undecided", ""))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError,
            RecursionError) as fault:  # fmt: skip
        raise StateError(
            f"{path} is damaged, so what was released is not known: restore it from a backup, or "
            "give another directory with --state."
        ) from fault
