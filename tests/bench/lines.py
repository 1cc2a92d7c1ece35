"""How many rows of ZeroDFL's start still have a descendant (docs/methods.md): draws, no gradients.

`python -m tests.bench.lines` plays the policy's own draws of recipients and of rows in rounds in
step, where each row holds the number of the row of the start that it descends from.
"""

from __future__ import annotations

import random

import numpy as np

from fednode.policies.zerodfl.pool import Entry, Pool, merge
from fednode.policies.zerodfl.recipients import EPSILON, draw_recipients

ROWS = 4
RUNS = 60
SHOWN = (1, 10, 50)


def alive(nodes: int, recipients: int, kept: bool, rounds: int, seed: int) -> list[int]:
    """Return the number of rows of the start that have a descendant, after each round."""
    chance = random.Random(seed)
    names = [f"node-{at:02d}" for at in range(nodes)]
    held = {
        name: np.arange(at * ROWS, (at + 1) * ROWS, dtype=np.float32)[:, None]
        for at, name in enumerate(names)
    }
    counts = {name: dict.fromkeys(set(names) - {name}, 0) for name in names}
    found = []
    for number in range(1, rounds + 1):
        pools = {name: Pool(1) for name in names}
        for name in names:
            drawn = draw_recipients(counts[name], counts[name], recipients, EPSILON, chance)
            for other in drawn:
                counts[name][other] += 1
                pools[other].add(Entry(name, number, held[name]))
        held = {name: merge(held[name], pools[name].draw(ROWS, chance, kept)) for name in names}
        found.append(len(set(np.concatenate(list(held.values())).ravel().tolist())))
    return found


def main() -> None:
    """Print the table of docs/methods.md."""
    for nodes, recipients, kept in ((5, 2, False), (5, 2, True), (5, 4, False), (30, 5, False)):
        runs = [alive(nodes, recipients, kept, max(SHOWN), seed) for seed in range(RUNS)]
        means = [float(np.mean([run[at - 1] for run in runs])) for at in SHOWN]
        shown = " | ".join(f"{one:.1f}" for one in means)
        print(f"{nodes} nodes, {recipients} recipients, kept {kept} | {shown} | {nodes * ROWS}")


if __name__ == "__main__":
    main()
