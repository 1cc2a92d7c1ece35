"""`fednode.experiment`: compare methods from Python, a class of a notebook's cell among them.

It runs the cells that `fednode experiment` would run, one after another in this process, and
returns a row for each test of each node. Nothing is written to disk but the cache of features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fednode.errors import ConfigError, FednodeError
from fednode.lab.experiment import picture, table
from fednode.lab.experiment.cells import Done
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.run import attempt, cells
from fednode.lab.experiment.settings import Experiment
from fednode.learn.build import use_threads


class Results(list[dict[str, Any]]):
    """A row for each test of each node; `pandas.DataFrame(results)` is a table of them.

    Keys of a row: method, seed, left_out (the domain, or ""), test, node, accuracy (0 to 1).

    Attributes:
        experiment: what was run
        faults: a sentence for each run that failed, by the run's title
    """

    def __init__(self, experiment: Experiment, done: Sequence[Done]) -> None:
        super().__init__(_rows(done))
        self.experiment = experiment
        self.faults = {ended.cell.title: ended.fault for ended in done if ended.fault}
        self._done = done

    def differences(self, against: str | None = None) -> list[dict[str, Any]]:
        """Return the difference of each method from a control, paired by seed and node.

        against: the label of the control; None: the experiment's `against`, or else its first
        method of policy local. Keys of a row: metric, method, control, mean, low, high (the 95 %
        interval, accuracies from 0 to 1), pairs, seeds, wins.
        """
        experiment = self.experiment
        if against is not None:
            labels = [method.label for method in experiment.methods]
            if against not in labels:
                raise ConfigError(
                    f"against is {against!r}, which is no method; there are {', '.join(labels)}."
                )
            experiment = replace(experiment, against=(against,))
        return [asdict(row) for row in table.differences(experiment, self._done)]

    def plot(self) -> Any:
        """Return matplotlib's figure of accuracy, loss and consensus distance over rounds.

        The accuracy has a point for each `curve_every` rounds. Raise ConfigError if matplotlib is
        not installed.
        """
        return picture.figure(picture.panels_of(self._done))


def experiment(
    source: str | Path | Mapping[str, Any],
    methods: Mapping[str, Any] | None = None,
    *,
    smoke: bool = False,
    progress: Callable[[str], None] = print,
) -> Results:
    """Run an experiment in this process; return its results.

    Args:
        source: a file of `fednode experiment`, or a mapping with the same keys
        methods: further methods by label: a class, or a section as in the file, whose policy or
            policy.name may be a class
        smoke: run the small sizes of the source's section `smoke`
        progress: gets a line after each run, and the traceback of an error in a class

    Raise ConfigError if the source or a class is wrong, FednodeError if all runs fail. A single run
    that fails is left out of the rows and named in `faults`.
    """
    given = source if isinstance(source, Mapping) else Path(source)
    loaded = load_experiment(given, smoke, more=methods)
    if loaded.vary:
        raise ConfigError("vary is for the command `fednode experiment`: call once for each value.")
    done, wanted = list[Done](), cells(loaded)
    use_threads(1)
    for cell in wanted:
        done.append(attempt(loaded, cell))
        progress(f"{len(done)}/{len(wanted)} {cell.title}: {done[-1].summary}")
        if done[-1].trace:  # of a class of the caller's own, most likely
            progress(done[-1].trace)
    if all(ended.fault for ended in done):
        raise FednodeError(done[0].fault)
    return Results(loaded, done)


def _rows(done: Sequence[Done]) -> list[dict[str, Any]]:
    return [
        {
            "method": ended.cell.method.label,
            "seed": ended.cell.seed,
            "left_out": ended.cell.target,
            "test": test,
            "node": node,
            "accuracy": accuracy,
        }
        for ended in done
        for test, node, accuracy in ended.scores()
    ]
