"""Draw an experiment's curves: accuracy and loss over rounds, a line for each method."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from node.errors import ConfigError
from node.experiment.run import Done


def draw(done: Sequence[Done], path: Path) -> None:
    """Write a PNG; raise ConfigError where matplotlib is not there."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError(
            "matplotlib draws the curves and is not installed: pip install 'fednode[plot]'."
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for axis, (title, lines) in zip(axes, _panels(done).items(), strict=True):
        for label, points in lines.items():
            rounds = sorted(points)
            axis.plot(rounds, [fmean(points[at]) for at in rounds], label=label, marker=".")
        axis.set(title=title, xlabel="round")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


Lines = Mapping[str, Mapping[int, list[float]]]


def _panels(done: Sequence[Done]) -> dict[str, Lines]:
    accuracy, loss, distance = _lines(), _lines(), _lines()
    for one in done:
        label = one.cell.method.label
        for number, scores in one.outcome.get("curve", {}).items():
            shown = {name: nodes for name, nodes in scores.items() if _is_new(name)} or scores
            means = [sum(nodes.values()) / len(nodes) for nodes in shown.values()]
            accuracy[label][int(number)].append(100 * fmean(means))
        for number, value in enumerate(one.outcome.get("loss", ()), 1):
            loss[label][number].append(value)
        for number, value in enumerate(one.outcome.get("consensus", ()), 1):
            distance[label][number].append(value)
    panels = {
        "accuracy, over domains or on new classes (%)": accuracy,
        "training loss": loss,
        "consensus distance": distance,
    }
    return {title: dict(lines) for title, lines in panels.items()}


def _is_new(test: str) -> bool:
    return test.rpartition("/")[2] == "new"


def _lines() -> defaultdict[str, defaultdict[int, list[float]]]:
    return defaultdict(lambda: defaultdict(list))
