"""Where the test of a module lies: in the same folder below tests/unit, under the module's name."""

from __future__ import annotations

from pathlib import Path

from tests.tidy.tree import ROOT, imports_of, product

# Modules whose test lies elsewhere: at most 40.
ELSEWHERE: dict[str, str] = {
    "fednode.clip.prefix": "tests/property/test_prefix.py",
    "fednode.core.rounds.progress": "tests/unit/core/rounds/test_personal.py",
    "fednode.core.view": "tests/unit/observe/test_present.py",
    "fednode.lab.bench.encoders": "tests/unit/lab/bench/test_measure.py",
    "fednode.lab.bench.floor": "tests/unit/lab/bench/test_measure.py",
    "fednode.lab.bench.losses": "tests/unit/policies/test_against_open_clip.py",
    "fednode.lab.bench.tasks": "tests/unit/lab/bench/test_measure.py",
    "fednode.lab.commands.bench_tuning": "tests/unit/lab/bench/test_measure.py",
    "fednode.lab.commands.simulate": "tests/simulation/test_simulate.py",
    "fednode.lab.simulate.byzantine": "tests/simulation/test_simulate.py",
    "fednode.lab.simulate.check": "tests/simulation/test_planted_bugs.py",
    "fednode.lab.simulate.checkers": "tests/simulation/test_planted_bugs.py",
    "fednode.lab.simulate.ends": "tests/simulation/test_simulate.py",
    "fednode.lab.simulate.faults": "tests/simulation/test_simulate.py",
    "fednode.lab.simulate.flipped": "tests/simulation/test_simulate.py",
    "fednode.lab.simulate.judge": "tests/simulation/test_redo_runs.py",
    "fednode.lab.simulate.lives": "tests/simulation/test_lives.py",
    "fednode.lab.simulate.moves": "tests/simulation/test_redo_runs.py",
    "fednode.lab.simulate.scenario": "tests/simulation/test_simulate.py",
    "fednode.lab.track.mlflow": "tests/contract/test_trackers.py",
    "fednode.lab.track.tensorboard": "tests/contract/test_trackers.py",
    "fednode.lab.track.wandb": "tests/contract/test_trackers.py",
    "fednode.learn.learner": "tests/contract/test_learners.py",
    "fednode.policies.fedclip.config": "tests/unit/policies/fedclip/test_objective.py",
    "fednode.policies.fedtpg.config": "tests/unit/policies/fedtpg/test_objective.py",
    "fednode.policies.promptfl.config": "tests/contract/test_policies.py",
    "fednode.sim.setup": "tests/unit/sim/test_world.py",
    "fednode.testing.learners": "tests/contract/test_learners.py",
    "fednode.testing.player": "tests/unit/policies/feddpt/test_exchange.py",
    "fednode.testing.policies": "tests/contract/test_policies.py",
    "fednode.testing.seeds": "tests/unit/sim/test_world.py",
    "fednode.transports.base": "tests/contract/test_transports.py",
    "fednode.transports.ways": "tests/unit/app/test_joining_relayed.py",
    "fednode_bootstrap.forks": "tests/unit/bootstrap/test_mesh.py",
}


def place(module: str) -> Path:
    """Return the file that holds the tests of a module."""
    root, *folders, last = module.split(".")
    inside = ("bootstrap",) if root == "fednode_bootstrap" else ()
    return ROOT.joinpath("tests", "unit", *inside, *folders, f"test_{last}.py")


def covers(test: Path, module: str) -> bool:
    """Tell whether a test file exists and imports the module itself."""
    return test.exists() and any(
        target == module or target.startswith(f"{module}.") for target in imports_of(test)
    )


def mirrored(module: str) -> bool:
    """Tell whether a module has its test in its place."""
    return covers(place(module), module)


def mirror_fault(module: str) -> str | None:
    """Return what is wrong with the place of a module's test, or None."""
    if product()[module].name == "__init__.py" or mirrored(module):
        return None
    named = ELSEWHERE.get(module)
    if named is None:
        return f"there is no {place(module).relative_to(ROOT)} that imports it"
    return None if covers(ROOT / named, module) else f"{named} does not import it"
