"""Run tests against mutants of the code: `python -m tests.mutants [NAME ...]`.

A mutant is one small change that makes the code wrong. Each mutant names the tests that must fail
with it. The program copies the tree to a temporary folder and changes only that copy. It runs the
tests without a change first; they must pass. Then it makes one change at a time and runs that
mutant's tests. A mutant is killed if at least one of its tests fails. Without names all mutants
run, one after the other, which takes some minutes.

The exit code is 0 if every mutant was killed and 1 otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutant import INSIDERS, OLDER, Mutant
from tests.mutant_doors import DOORS

ROOT: Final = Path(__file__).resolve().parents[1]
LIMIT_S: Final = 300.0
"""Time limit of one run of tests; a mutant whose tests do not end within it is not killed."""
FAILED: Final = 1
"""pytest's exit code for tests that ran, and of which some failed."""
FOLDERS: Final = ("node", "bootstrap", "configs", "proto", "tests", "tools")
"""Folders of the tree that a copy holds."""
FILES: Final = ("pyproject.toml",)


_ROBUST: Final = "tests/unit/core/merge/test_robust.py"
_KRUM: Final = f"{_ROBUST}::test_krum_is_the_mean_of_those_with_the_nearest_neighbours"
_FEDDPT: Final = "tests/unit/policies/test_feddpt.py"
_CERTIFICATES: Final = "node/fednode/identity/certificates.py"
_ROSTER: Final = "node/fednode/identity/roster.py"
_OF_ROSTER: Final = "tests/unit/identity/test_roster.py"
_FRAMES: Final = "tests/unit/runtime/test_frames.py"
_STORE: Final = "tests/unit/storage/test_store.py"
_ROUNDS: Final = "node/fednode/core/rounds/engine.py"
_MEAN: Final = "tests/unit/core/merge/test_mean.py"
_SCENES: Final = "tests/unit/core/test_transcripts.py"
_ALONE: Final = (
    "tests/simulation/test_never_alone.py::test_no_view_claims_a_federation_that_did_not_happen"
)
_RUNS: Final = "tests/unit/storage/test_runs.py"

_MERGE_RULES: Final = {
    "krum-neighbours": Mutant(
        "node/fednode/core/merge/robust.py",
        "near = max(1, count - liars - 2)",
        "near = max(1, count - liars - 1)",
        (_KRUM,),
    ),
    "feddpt-weights": Mutant(
        "node/fednode/policies/feddpt.py",
        "[1.0] * len(tensors)",
        "[float(contribution.samples) for contribution in given]",
        (f"{_FEDDPT}::test_a_slot_is_the_unweighted_mean_of_its_owners",),
    ),
    "feddpt-keep": Mutant(
        "node/fednode/policies/feddpt.py",
        'self.config.optimizer == "keep"',
        'self.config.optimizer != "keep"',
        (f"{_FEDDPT}::test_the_optimizer_is_kept_or_reset_as_the_setting_says",),
    ),
    "weights-ratio": Mutant(
        "node/fednode/core/merge/mean.py",
        "[min(float(count), most) for count in said]",
        "[float(count) for count in said]",
        (_MEAN,),
    ),
}
_STORAGE: Final = {
    "disk-sync": Mutant(
        "node/fednode/storage/disk.py",
        "os.fsync(descriptor)",
        "pass",
        (f"{_STORE}::test_a_sync_is_the_systems_own",),
    ),
    "checkpoint-kept": Mutant(
        "node/fednode/storage/store.py",
        "self._sweep(self._history.newest)  # after an error, this removes the new round",
        "pass",
        (f"{_STORE}::test_a_full_disk_at_any_call_is_a_sentence_and_the_next_commit_works",),
    ),
    "checkpoint-digest": Mutant(
        "node/fednode/storage/checkpoint.py",
        "if digest != _digest(head, tensors):",
        "if False:",
        ("tests/unit/storage/test_store_damage.py",),
    ),
    "history-adopted": Mutant(
        "node/fednode/storage/history.py",
        "if row is None or row.round > newest:",
        "if row is None:",
        ("tests/unit/storage/test_history.py",),
    ),
}
_GATEWAY: Final = {
    "engine-window-wide": Mutant(
        _ROUNDS,
        "if message.round <= self._adopted:",
        "if message.round < self._adopted:",
        (_SCENES,),
    ),
    "engine-window-narrow": Mutant(
        _ROUNDS,
        "if message.round <= self._adopted:",
        "if message.round <= self._adopted + 1:",
        (_SCENES,),
    ),
    "swim-own-incarnation": Mutant(
        "node/fednode/core/members/swim.py",
        "news.incarnation < self._incarnation:",
        "news.incarnation <= self._incarnation:",
        (_SCENES,),
    ),
    "driver-quota": Mutant("node/fednode/runtime/driver.py", "if over:", "if False:", (_FRAMES,)),
    "driver-identity": Mutant(
        "node/fednode/runtime/driver.py",
        "reason = self.members.check_sender(caller, message.sender)",
        'reason = ""',
        (_FRAMES,),
    ),
    "driver-flood": Mutant(
        "node/fednode/runtime/driver.py",
        "if not fault.kind or (fault.kind == FLOODED and self._over[known] % FLOOD):",
        "if not fault.kind or fault.kind == FLOODED:",
        (_FRAMES,),
    ),
    "driver-frame": Mutant(
        "node/fednode/runtime/driver.py",
        'FrameRefused("invalid", "frame", str(fault))',
        'FrameRefused("invalid", "", str(fault))',
        (_FRAMES,),
    ),
    "driver-points": Mutant(
        "node/fednode/runtime/driver.py",
        "self._post(ev.Misbehaved(known, str(fault)))",
        "pass",
        (_FRAMES,),
    ),
}
_COMPANY: Final = {
    "plan-remote": Mutant(
        "node/fednode/app/plan.py",
        "(not address.loopback and address.host != own)",
        "(not address.loopback)",
        ("tests/unit/app/test_plan.py",),
    ),
    "finish-giver": Mutant(
        "node/fednode/core/rounds/catchup.py",
        "offer.tensors, peer)",
        "offer.tensors)",
        ("tests/unit/core/rounds/test_catchup.py",),
    ),
    "engine-giver": Mutant(
        "node/fednode/core/rounds/engine.py",
        "self._notes.givers = (found.giver,) if found.giver else ()",
        "self._notes.givers = ()",
        (_SCENES,),
    ),
    "engine-abort-givers": Mutant(
        "node/fednode/core/rounds/engine.py",
        "self._notes.givers = ()\n        text",
        "text",
        (_SCENES,),
    ),
    "zerodfl-givers": Mutant(
        "node/fednode/core/rounds/gossip.py",
        "self._tensors, self._senders = mixed, tuple(sorted(senders))",
        "self._tensors, self._senders = mixed, tuple(sorted(self._live))",
        ("tests/unit/policies/test_zerodfl.py",),
    ),
    "mesh-exit-code": Mutant(
        "bootstrap/fednode_bootstrap/local.py",
        'show.require_merged(replies, f"{early}Their logs in {folder} say more.")',
        "pass",
        ("tests/unit/bootstrap/test_local.py",),
    ),
    "show-paused": Mutant(
        "node/fednode/terminal/show.py",
        "ended = reply.life in {Life.FINISHED, Life.PAUSED, Life.LEAVING, Life.STOPPING}",
        "ended = reply.life in {Life.FINISHED, Life.LEAVING, Life.STOPPING}",
        (f"{_ALONE}[paused]",),
    ),
}
_ACTIVE: Final = {
    "active-paused": Mutant(
        "node/fednode/core/kernel.py", "return not self._idle", "return True", (_SCENES,)
    ),
    "active-alone": Mutant(
        "node/fednode/core/kernel.py",
        "return self.life != Life.FINISHED or not alone",
        "return True",
        (_SCENES,),
    ),
    "active-wait": Mutant(
        "node/fednode/core/waiting.py",
        "ready = len(self.members.active())",
        "ready = len(self.members.live())",
        (_SCENES,),
    ),
    "active-links": Mutant(
        "node/fednode/core/kernel.py",
        "members.active() if self._linking",
        "{*members.live()} if self._linking",
        (_SCENES,),
    ),
    "active-first": Mutant(
        "node/fednode/core/kernel.py",
        "return [done, *self._changes(now), *self._next_round(now)]",
        "return [done, *self._next_round(now)]",
        (_SCENES,),
    ),
}
_STORED_RUNS: Final = {
    "runs-kept": Mutant(
        "node/fednode/storage/store.py",
        "for name in (SETTINGS, CLASSES, HISTORY):",
        "for name in (SETTINGS, CLASSES):",
        (_RUNS,),
    ),
    "runs-sync": Mutant("node/fednode/storage/store.py", "disk.sync_path(run)", "pass", (_RUNS,)),
}
_KEYS: Final = {
    "certificate-ended": Mutant(
        _ROSTER,
        "if now > chain.ends:",
        "if False:",
        (f"{_OF_ROSTER}::TestMembers",),
    ),
    "certificate-sponsor": Mutant(
        _CERTIFICATES,
        "return min(self.own.ends, (self.sponsor or self.own).ends)",
        "return self.own.ends",
        (f"{_OF_ROSTER}::TestMembers",),
    ),
    "certificate-leaf": Mutant(
        _CERTIFICATES,
        "if self.own.signs or not (self.sponsor is None or self.sponsor.signs):",
        "if self.own.signs:",
        (f"{_OF_ROSTER}::TestMembers",),
    ),
    "certificate-name": Mutant(
        _ROSTER,
        "return one.sponsor_id not in self._revoked, one.own.begins, one.own.id",
        "return True, one.own.begins, one.own.id",
        (f"{_OF_ROSTER}::TestTwoCertificatesOfOneName",),
    ),
    "certificate-revoked": Mutant(
        _ROSTER,
        "if chain.own.id in self._revoked:",
        "if False:",
        (f"{_OF_ROSTER}::TestRevocation",),
    ),
    "revocation-mesh": Mutant(
        _ROSTER,
        "if revocation.mesh != self.mesh:",
        "if False:",
        (f"{_OF_ROSTER}::TestRevocation",),
    ),
}
_CHECKERS: Final = {
    f"checker-{checker}": Mutant(
        "node/fednode/lab/simulate/checkers.py",
        f"    {checker},\n",
        "",
        (f"tests/simulation/test_planted_bugs.py::test_a_planted_bug_is_found[{bug}]",),
    )
    for checker, bug in {
        "ResumesWhereItWas": "restart",
        "RoundsGoForward": "stored",
        "AdoptsWhatIsSound": "gate",
        "OneTuningAtATime": "job",
        "AnswersEachOnce": "never",
        "SpeaksInItsName": "itself",
        "TellsOnlyWhatIsStored": "early",
        "KeepsWithinBounds": "timers",
        "HonestStayFree": "faults",
        "MovesByProof": "word",
        "WaitsWithinDeadlines": "deadline",
        "RepeatsItselfSlowly": "again",
        "SaysOnlyText": "text",
    }.items()
}
MUTANTS: Final[Mapping[str, Mutant]] = {
    **_MERGE_RULES,
    **_STORAGE,
    **_GATEWAY,
    **OLDER,
    **INSIDERS,
    **DOORS,
    **_COMPANY,
    **_ACTIVE,
    **_STORED_RUNS,
    **_KEYS,
    **_CHECKERS,
}


def copied(folder: Path) -> None:
    """Copy what tests need to an empty folder."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name)
    for name in FILES:
        shutil.copy2(ROOT / name, folder / name)


def run(folder: Path, tests: Sequence[str]) -> int | None:
    """Run tests in a copy; return pytest's exit code, None if they did not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    roots = (folder / "node", folder / "bootstrap", folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode not in (0, FAILED):
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
    return done.returncode


def judged(folder: Path, mutant: Mutant) -> str:
    """Return "killed", or what happened in its place; the copy is as before afterwards."""
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return f"cannot be made: {mutant.file} holds its text {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code = run(folder, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    if code is None:
        return f"not judged: its tests did not end within {LIMIT_S:g} s"
    return {0: "SURVIVED", FAILED: "killed"}.get(code, f"not judged: pytest ended with {code}")


def main(names: Sequence[str]) -> int:
    """Run the mutants of these names, or all; return the exit code."""
    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        print(f"No mutant is called {unknown[0]!r}. The mutants are: {', '.join(MUTANTS)}.")
        return 1
    chosen = {name: MUTANTS[name] for name in names or MUTANTS}
    with tempfile.TemporaryDirectory(prefix="fednode-mutants-") as made:
        folder = Path(made)
        copied(folder)
        tests = sorted({one for mutant in chosen.values() for one in mutant.tests})
        if run(folder, tests) != 0:
            print("The tests fail without a mutant, too: mend them first.")
            return 1
        verdicts = {}
        for name, mutant in chosen.items():
            began = time.monotonic()
            verdicts[name] = judged(folder, mutant)
            print(f"{name:24} {verdicts[name]} ({time.monotonic() - began:.0f} s)", flush=True)
    alive = [name for name, verdict in verdicts.items() if verdict != "killed"]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants are killed.")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
