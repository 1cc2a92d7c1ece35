"""Any value in a settings file, peers.yaml, scenario or experiment: settings, or a sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode.lab.commands.simulate import load as load_scenario
from fednode.lab.experiment.files import load_experiment
from fednode.settings.peers import load_peers
from fednode.settings.read import load_settings

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = {
    "settings": (ROOT / "configs/node.yaml", lambda path: load_settings(path, {})),
    "peers": (ROOT / "configs/peers.yaml", load_peers),
    "scenario": (ROOT / "configs/sim/everything.yaml", load_scenario),
    "experiment": (ROOT / "configs/experiments/pacs-in-domain.yaml", load_experiment),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
# A file is slow to read hundreds of times, so what fails is shown as it was found.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def read(kind: str, path: Path) -> Any:
    """Return what a file holds, or the sentence of the ConfigError in which it ends."""
    loader: Callable[[Path], Any] = CORPUS[kind][1]
    try:
        return loader(path)
    except ConfigError as fault:
        return str(fault)


@functools.cache
def shipped(kind: str) -> Any:
    """Return what the file that ships holds."""
    return read(kind, CORPUS[kind][0])


def check(kind: str, path: Path) -> None:
    """Read a file: it is settings like those that ship, or a sentence that names the file."""
    found = read(kind, path)
    if isinstance(found, str):
        assert str(path) in found
        assert found.rstrip()[-1] in ".:)"
    else:
        assert type(found) is type(shipped(kind))


@pytest.mark.parametrize("kind", sorted(CORPUS))
@settings(max_examples=25, suppress_health_check=QUIET, phases=PHASES)
@given(data=st.data())
def test_a_file_with_one_value_changed_is_settings_or_a_sentence(
    tmp_path: Path, kind: str, data: Any
) -> None:
    tree = yaml.safe_load(CORPUS[kind][0].read_text())
    place = tree
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        deeper = isinstance(place[key], dict | list) and place[key]
        if not deeper or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(VALUES)
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    check(kind, path)
