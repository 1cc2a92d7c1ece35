"""No image of a table's tests is in the search that chose the table's settings.

The searches took the images of pays-classes.yaml, pays-same.yaml and pays-domains.yaml: other
classes of Caltech-101 than the tables and, for PACS, categories of Caltech-101 that were redrawn.
Where the images are on this machine, they are compared by digest, too.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from fednode.data import builtin
from fednode.lab.experiment.files import load_experiment
from fednode.lab.experiment.settings import Experiment

CONFIGS = Path(__file__).resolve().parents[4] / "configs/experiments"
SEARCHES = ("pays-classes", "pays-same")
CALTECH = ("caltech-base-to-new", "zerodfl-beyond", "zerodfl-why", "zerodfl-overfit")
PACS = ("pacs-in-domain", "pacs-in-domain-published", "pacs-leave-one-out", "pacs-examined")
IMAGES = os.environ.get("FEDNODE_IMAGES", "")
"""A folder with 101_ObjectCategories and PACS, as docs/results.md uses them."""


def read(name: str) -> Experiment:
    return load_experiment(CONFIGS / f"{name}.yaml")


def classes(name: str) -> set[str]:
    found = read(name).data.classes
    assert found, f"{name} names its classes"
    return set(found)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("table", [*CALTECH, "caltech-same-classes"])
def test_a_table_of_caltech_has_no_class_of_a_search(table: str, search: str) -> None:
    assert not classes(table) & classes(search)


def test_tables_and_searches_take_classes_by_name_of_one_folder() -> None:
    """Equal names are equal images: all files but those of PACS name one folder."""
    folders = {Path(read(name).data.path).name for name in (*CALTECH, "pays-classes")}
    assert folders == {"101_ObjectCategories"}


@pytest.mark.parametrize("table", PACS)
def test_a_table_of_pacs_has_another_source_than_its_search(table: str) -> None:
    assert Path(read(table).data.path).name == "PACS"
    assert Path(read("pays-domains").data.path).name != "PACS"


def test_what_is_redrawn_for_pacs_is_in_no_table_of_caltech() -> None:
    """Categories that do not ship were redrawn; the tables' are those that ship."""
    assert set.union(*map(classes, CALTECH)) == {path.name for path in builtin.root().iterdir()}


@pytest.mark.skipif(not IMAGES, reason="FEDNODE_IMAGES names no folder of images")
def test_no_image_is_in_a_search_and_in_a_test_by_digest() -> None:
    caltech, pacs = Path(IMAGES) / "101_ObjectCategories", Path(IMAGES) / "PACS"
    searched = digests(caltech, set.union(*map(classes, SEARCHES)))
    tested = digests(caltech, set.union(*map(classes, CALTECH)))
    for folder in pacs.iterdir():
        tested |= digests(folder, {one.name for one in folder.iterdir()})
    assert searched
    assert tested
    assert not searched & tested


def digests(folder: Path, names: set[str]) -> set[str]:
    return {
        hashlib.sha256(path.read_bytes()).hexdigest()
        for name in names
        for path in (folder / name).rglob("*.jpg")
    }
