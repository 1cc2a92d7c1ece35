"""`fednode simulate FILE`: run meshes full of faults in virtual time; a seed repeats a run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from fednode.errors import ConfigError, FednodeError
from fednode.lab.simulate.scenario import CaseEnd, Scenario, draw, play, shrink
from fednode.settings.read import Source, checked, chosen_of, read_yaml
from fednode.storage.disk import put
from fednode.terminal.options import PATH
from fednode.terminal.stop import held_back

BROKEN: Final = 1
EVERY_S: Final = 5.0


@click.command()
@click.argument("file", type=PATH)
@click.option("--seed", default=1, show_default=True, help="The first seed.")
@click.option("--count", default=1, show_default=True, help="How many seeds, one after another.")
@click.option("--jobs", default=1, show_default=True, help="Processes to share them.")
@click.option("--verbose", is_flag=True, help="Say what each seed draws.")
@click.option(
    "--digests",
    type=PATH,
    metavar="FILE",
    help="Write a line for each seed: the seed, its events, a digest of how all nodes ended.",
)
def simulate(
    file: Path, seed: int, count: int, jobs: int, verbose: bool, digests: Path | None
) -> int:
    """Run the scenario in FILE for --count seeds; exit code 1 if a promise is broken.

    For each broken promise the command prints the seed, the fewest faults that still break the
    promise, and the command that repeats the run. With --digests, two versions of the code can be
    compared on one machine: equal files mean that every run had the same number of events and the
    same end.
    """
    scenario, configs = load(file)
    began, shown, events, virtual = time.monotonic(), time.monotonic(), 0, 0.0
    broken: Counter[str] = Counter()
    ends: dict[int, str] = {}
    for number, outcome in enumerate(
        _outcomes(scenario, configs, range(seed, seed + count), jobs), 1
    ):
        events, virtual = events + outcome.events, virtual + outcome.seconds
        ends[outcome.case.seed] = f"{outcome.case.seed} {outcome.events} {outcome.ends}\n"
        if verbose:
            click.echo(f"seed {outcome.case.seed}: {'; '.join(outcome.case.lines())}")
        if outcome.violation is not None:
            broken[outcome.violation.checker] += 1
            _report(file, scenario, outcome, first=broken[outcome.violation.checker] == 1)
        if time.monotonic() - shown > EVERY_S and number < count:
            shown = time.monotonic()
            click.echo(f"{number:,} of {count:,} seeds", err=True)
    if digests is not None:
        text = "".join(ends[seed] for seed in sorted(ends))
        put(digests, text, "--digests", for_all=True)
    seconds = time.monotonic() - began
    kinds = "".join(f", {times} {name}" for name, times in sorted(broken.items()))
    click.echo(
        f"{count:,} seeds from {seed} on, {events:,} events, {virtual / 3600:.1f} virtual hours: "
        f"{sum(broken.values())} broken{kinds}"
    )
    click.echo(f"{seconds:.1f} s, {60 * count / seconds:,.0f} seeds a minute", err=True)
    return BROKEN if broken else 0


def load(file: Path) -> tuple[Scenario, tuple[Any, ...]]:
    """Return a scenario and its policies' configurations; raise ConfigError if they are wrong."""
    source = _with_meshes(file)
    scenario = checked(Scenario, source)
    configs = []
    for number, mesh in enumerate(scenario.meshes):
        try:
            if "name" not in mesh.policy:
                raise ConfigError("policy has no name; give one, such as zerodfl.")
            configs.append(chosen_of(mesh.policy).config)
        except ConfigError as fault:
            place = source.at(["meshes", str(number)])
            raise ConfigError(f"{place}: {fault}") from fault
    return scenario, tuple(configs)


def _with_meshes(file: Path) -> Source:
    """Return a scenario's file; if its meshes are the name of another file, with that one's."""
    source = read_yaml(file)
    named = source.tree.get("meshes")
    if not isinstance(named, str):
        return source
    path = file.parent / named
    if not os.path.isfile(path):  # False for a name that no file can have
        raise ConfigError(
            f"{source.at(['meshes'])}: meshes is {named!r}, and there is no file {path}; name a "
            "scenario beside this one, or list meshes."
        )
    other = read_yaml(path)
    places = {place: at for place, at in other.places.items() if place[0] == "meshes"}
    tree = {**source.tree, "meshes": other.tree.get("meshes")}
    return Source(str(file), tree, {**source.places, **places})


def _outcomes(
    scenario: Scenario, configs: tuple[Any, ...], seeds: range, jobs: int
) -> Iterator[CaseEnd]:
    if jobs < 1:
        raise FednodeError(f"--jobs is {jobs}; give at least 1.")
    work = ((scenario, configs, seed) for seed in seeds)
    if jobs == 1 or len(seeds) == 1:
        yield from map(_one, work)
        return
    with held_back(signal.SIGINT):  # Ctrl-C is for this process, which ends the others
        made = multiprocessing.get_context("spawn").Pool(jobs)
    with made as pool:
        yield from pool.imap_unordered(_one, work, chunksize=8)


def _one(given: tuple[Scenario, tuple[Any, ...], int]) -> CaseEnd:
    scenario, configs, seed = given
    return play(scenario, draw(scenario, configs, seed))


def _report(file: Path, scenario: Scenario, outcome: CaseEnd, first: bool) -> None:
    click.echo(f"seed {outcome.case.seed} breaks {outcome.violation}")
    if first:  # the first violation of this promise
        least = shrink(scenario, outcome)
        click.echo("  with no more than:")
        for line in least.case.lines():
            click.echo(f"    {line}")
    click.echo(f"  again: fednode simulate {file} --seed {outcome.case.seed}")
