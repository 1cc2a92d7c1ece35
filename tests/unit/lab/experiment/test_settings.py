"""Settings of an experiment refuse what makes no sense, with the key and the value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fednode.lab.experiment.settings import (
    DataPart,
    Experiment,
    MethodSettings,
    ProtocolSettings,
)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ProtocolSettings(kind="base-to-new", clients=0), "protocol.clients is 0"),
        (lambda: ProtocolSettings(kind="base-to-new", classes_per_client=0), "classes_per_client"),
        (lambda: DataPart(path="x", shots=-1), "data.shots is -1; it must be at least 0"),
        (lambda: DataPart(path="x", test=1.0), "data.test is 1; it must be from 0 to 0.99"),
        (lambda: DataPart(path="x", test_images=-1), "data.test_images is -1"),
        (lambda: MethodSettings(label="local", liars=-1), "liars is -1"),
        (lambda: MethodSettings(label="local", lie="x"), "lie is 'x'; there are "),
    ],
)
def test_a_value_out_of_range_is_a_sentence(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def experiment(**set_: object) -> Experiment:
    given = {
        "title": "t",
        "protocol": ProtocolSettings(kind="base-to-new"),
        "data": DataPart(path="x"),
        "methods": (MethodSettings(label="local"),),
        "seeds": (1,),
        "rounds": 2,
    }
    return Experiment(**{**given, **set_})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("set_", "text"),
    [
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"curve_every": -1}, "curve_every is -1"),
        ({"seeds": ()}, "seeds is empty; give one at least"),
        ({"seeds": (1, 1)}, "seeds names '1' twice"),
        ({"methods": ()}, "methods is empty"),
        ({"vary": {"rounds": [1], "data.shots": [1]}}, "vary names 2 keys"),
        ({"vary": {"rounds": []}}, "give one value or more, none twice"),
    ],
)
def test_an_experiment_names_what_is_missing_or_doubled(set_: dict[str, object], text: str) -> None:
    assert experiment().rounds == 2
    with pytest.raises(ValueError, match=text):
        experiment(**set_)
