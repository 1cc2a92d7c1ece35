"""What README.md and docs/ show is true: commands parse, settings load, Python runs, links lead on.

Method: read the code blocks with a Markdown parser. Every block has a language, and each language
one check here (toml, and the Python of the policy guide, are followed in tests/e2e/test_guide.py;
README's quick start is run in tests/e2e/test_readme.py; `make check` builds the site).
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import open_clip
import pytest
import yaml
from markdown_it import MarkdownIt
from PIL import Image

import fednode
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.evaluation.results import ClassResult, Evaluation
from fednode.lab.experiment.files import load_experiment
from fednode.learn.explain import Near
from fednode.settings.read import Source, settings_of
from tests.command_line import parsed
from tests.unit.commands.tuned import tune_in

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"sh", "text", "yaml", "toml", "python", "{toctree}"}


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}-{self.line}"


@functools.cache
def blocks(language: str = "") -> list[Block]:
    if language:
        return [one for one in blocks() if one.language == language]
    return [
        Block(page, token.map[0] + 1, token.info, token.content)
        for page in PAGES
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8"))
        if token.type == "fence" and token.map is not None
    ]


def test_every_block_has_a_language_that_is_checked() -> None:
    assert {one.language for one in blocks()} <= LANGUAGES, [str(one) for one in blocks()]


def commands() -> Iterator[tuple[str, list[str]]]:
    for block in blocks("sh"):
        text = re.sub(r"\\\n\s*", " ", block.text)
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            inside = words[:1] in (["docker"], ["kubectl"]) and "fednode" in words
            if inside or words[:1] == ["fednode"]:
                yield f"{block}: {line}", words[words.index("fednode") + 1 :]


def test_no_command_of_a_measured_table_moves_its_images() -> None:
    """A cell's key holds data.path; another path would find none of the scores in docs/scores.

    So only a path that some file of experiments names may be set.
    """
    files = (ROOT / "configs/experiments").glob("*.yaml")
    named = {yaml.safe_load(file.read_text(encoding="utf-8"))["data"]["path"] for file in files}
    measured = [words for _, words in commands() if "configs/experiments/" in " ".join(words)]
    assert len(measured) > 10
    moved = re.findall(r"data\.path=(\S+)", " ".join(word for words in measured for word in words))
    assert set(moved) <= named


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in commands()])
def test_every_command_is_one(words: list[str]) -> None:
    ends = next((at for at, word in enumerate(words) if word in (">", ">>")), len(words))
    optional = [re.sub(r"^\[(.*)\]$", r"\1", word) for word in words[:ends]]
    assert parsed(optional).command.callback is not None


@pytest.mark.parametrize(
    # The experiment of the guide names the guide's own method: tests/e2e/test_guide.py.
    "block",
    [one for one in blocks("yaml") if "mymethod:FedAvgM" not in one.text],
    ids=str,
)
def test_every_yaml_block_is_settings_or_an_experiment(block: Block, tmp_path: Path) -> None:
    held = yaml.safe_load(block.text)
    if "methods" in held:
        path = tmp_path / "experiment.yaml"
        path.write_text(block.text)
        assert load_experiment(path).methods
    else:
        settings_of(Source(str(block), held))


def test_the_page_of_the_python_interface_lists_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    parts = page.split("\n## ")
    listed = {part.splitlines()[0].strip("`").split(".")[-1].split("(")[0]: part for part in parts}
    assert set(fednode.__all__) - {"__version__"} <= listed.keys()
    for kind in (fednode.Prompts, Near, Evaluation, ClassResult):
        public = {name for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}
        said = set(re.findall(r"`(\w+)", listed[kind.__name__]))
        assert public - said - {"figures"} == set(), kind.__name__
        for name in public:
            member = getattr(kind, name, None)
            if inspect.isfunction(member):
                words = inspect.signature(member).parameters.values()
                given = ", ".join(
                    one.name if one.default is one.empty else f"{one.name}={one.default}"
                    for one in words
                    if one.name != "self"
                )
                assert f"`{name}({given})`" in page, name


def test_python_on_the_page_of_the_python_interface_runs(
    tuned_state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = (one for one in blocks("python") if one.page.name == "api.md")
    Image.fromarray(np.full((64, 64, 3), 200, dtype=np.uint8)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    exec(block.text.replace('"DIR"', repr(str(tuned_state))), {})
    names, probabilities = capsys.readouterr().out.splitlines()
    assert names in ("['lemon']", "['sea']")
    assert len(probabilities.strip("[]").split()) == 2


class Elsewhere:
    """open_clip as a reader has it, with the weights that are here in place of ViT-B-16's."""

    asked: ClassVar[list[Any]] = []

    @classmethod
    def create_model_and_transforms(cls, name: str, pretrained: str) -> tuple[Any, Any, Any]:
        assert name in open_clip.list_models()
        assert pretrained in open_clip.list_pretrained_tags_by_model(name)
        cls.asked.append(name)
        frozen = clip.load(ModelSettings())
        return frozen.model, None, frozen.preprocess


@pytest.fixture(scope="module")
def tuned_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tune_in(tmp_path_factory.mktemp("node"))


def test_python_in_the_operations_guide_runs(
    tuned_state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [one for one in blocks("python") if one.page.name == "operations.md"]
    assert len(found) == 3
    Image.fromarray(np.full((64, 64, 3), 200, dtype=np.uint8)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    prompts = fednode.load(tuned_state)
    features, _ = prompts.text_features()
    from fednode.learn.export import write_matrix

    write_matrix(*prompts.affine(), prompts.classes, {}, tmp_path / "texts.safetensors")
    with_fednode, without, of_mini = found
    scope: dict[str, Any] = {}
    exec(with_fednode.text.replace('"DIR"', repr(str(tuned_state))), scope)
    assert scope["features"].shape == features.shape
    stand_in = ModuleType("open_clip")
    stand_in.create_model_and_transforms = Elsewhere.create_model_and_transforms  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "open_clip", stand_in)
    matrix: dict[str, Any] = {}
    exec(without.text, matrix)
    assert capsys.readouterr().out.strip() == prompts.names(["photo.jpg"])[0]
    exec(of_mini.text.replace('"DIR"', repr(str(tuned_state))), matrix)
    assert capsys.readouterr().out.strip() == prompts.names(["photo.jpg"])[0]
    assert Elsewhere.asked == ["ViT-B-16"]


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
            for inner in token.children or ():
                target = inner.attrs.get("href") or inner.attrs.get("src")
                if target and not re.match(r"[a-z]+:", str(target)):
                    yield page, str(target)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()) for head in heads]
    return {head.replace(" ", "-") for head in plain}


def test_every_link_leads_somewhere() -> None:
    dead = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            dead.append(f"{page.name}: {target}")
    assert dead == []


def test_every_test_that_a_page_names_is_there() -> None:
    lost = []
    for page in PAGES:
        for path, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text("utf-8")):
            file = ROOT / path
            if not file.exists() or (name and f"def {name}(" not in file.read_text("utf-8")):
                lost.append(f"{page.name}: {path}::{name}")
    assert lost == []


def test_the_notebook_is_stored_without_outputs() -> None:
    for path in (ROOT / "docs").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), path.name
