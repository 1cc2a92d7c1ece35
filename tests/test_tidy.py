"""Hold the house rules: who may import whom, sizes, generated code, and what must never appear.

Goal: someone who opens the tree sees the architecture, and it stays true. Method: read every Python
file's syntax tree and compare with the tables below (docs/architecture.md explains them).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy.mirror import ELSEWHERE, mirror_fault, mirrored
from tests.tidy.sleeps import sleeps
from tests.tidy.table import faults, matches, misplaced, part_of, rows, same
from tests.tidy.tree import (
    ROOT,
    ROOTS,
    SOURCES,
    circles,
    folder_graphs,
    imports_of,
    module_graph,
    module_name,
    parsed,
    product,
    tracked,
)

LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def imports_follow_the_architecture(path: Path) -> None:
    name = module_name(path)
    wanted = imports_of(path)
    judged = (faults(name, wanted) if name in product() else []) + misplaced(name, wanted)
    assert not judged, "; ".join(judged)


def pure_parts_draw_nothing(path: Path) -> None:
    name = module_name(path)
    part = part_of(name) if name in product() else None
    if part is None or not rows()[part].pure:
        return
    for call in ast.walk(parsed(path)):
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name):
            used = f"{call.value.id}.{call.attr}"
            drawn = call.value.id == "random" and call.attr != "Random"
            assert not drawn, f"{name}:{call.lineno} draws from the global generator: {used}"
            seeded = rows()[part].pure == "seeded"
            assert seeded or used != "np.random", f"{name}:{call.lineno} uses numpy's generator"


def sizes(path: Path) -> None:
    text = path.read_text()
    lines = len(text.splitlines())
    assert lines <= LINES_MAX, f"{path.name} has {lines} lines, the limit is {LINES_MAX}"
    for part in ast.walk(parsed(path)):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (part.end_lineno or part.lineno) - part.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{part.name} has {length} lines"


def nothing_forbidden(path: Path) -> None:
    name = module_name(path)
    tree = parsed(path)
    for part in ast.walk(tree):
        if isinstance(part, ast.Raise) and part.exc is not None:
            assert "NotImplementedError" not in ast.unparse(part.exc), f"{name}:{part.lineno}"
        if not isinstance(part, ast.Call):
            continue
        called = ast.unparse(part.func)
        if called == "torch.load":
            safe = any(
                key.arg == "weights_only" and ast.unparse(key.value) == "True"
                for key in part.keywords
            )
            assert safe, f"{name}:{part.lineno}: torch.load without weights_only=True"
    # A rival's processes are asked again and again, because they say nothing by themselves.
    if name.startswith("tests") and not name.startswith("tests.bench.rivals"):
        assert not (lines := sleeps(tree)), f"{name}: a test sleeps in lines {lines}"


def modules_and_public_names_say_what_they_are(path: Path) -> None:
    name = module_name(path)
    if name.startswith("tests") or path.stat().st_size == 0:
        return
    tree = parsed(path)
    assert ast.get_docstring(tree), f"{name} has no docstring"
    for part in tree.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            public = not part.name.startswith("_")
            assert not public or ast.get_docstring(part), f"{name}.{part.name} has no docstring"


@pytest.mark.parametrize(
    "holds",
    [
        imports_follow_the_architecture,
        pure_parts_draw_nothing,
        sizes,
        nothing_forbidden,
        modules_and_public_names_say_what_they_are,
    ],
)
def test_every_file(holds: Callable[[Path], None]) -> None:
    seen = []
    for path in SOURCES:
        try:
            holds(path)
        except AssertionError as fault:
            seen.append(f"{path.relative_to(ROOT)}: {fault}")
    assert not seen, "\n".join(seen)


def test_every_folder_and_every_module_at_the_top_has_a_row() -> None:
    """So that no new folder follows a wider row by chance; below a policy, files have rows."""
    for name, path in product().items():
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        wanted = name if folder == "fednode" else folder
        wanted = "fednode.__init__" if wanted == "fednode" else wanted
        policy = re.fullmatch(r"fednode\.policies\.\w+", wanted)
        assert policy or wanted in rows(), f"{wanted} has no row in docs/architecture.md"


def test_every_row_covers_a_module() -> None:
    used = {part_of(name) for name in product()}
    assert used == set(rows()), f"rows without a module: {sorted(set(rows()) - used)}"


def test_no_row_allows_what_its_part_does_not_import() -> None:
    """So that the table shows the tree as it is, and a new import is a decision."""
    used: dict[str, set[str]] = {}
    for name, path in product().items():
        part = str(part_of(name))
        words = used.setdefault(part, set())
        for word in rows()[part].allowed:
            here = same(word, part, name)
            words |= {word for target in imports_of(path) if matches(target, here)}
    idle = {part: set(row.allowed) - used[part] for part, row in rows().items()}
    assert not any(idle.values()), {part: words for part, words in idle.items() if words}


def test_every_name_in_the_table_is_a_module_or_a_folder() -> None:
    known = {*product(), "fednode.wire.gen", "fednode.__version__"}
    for part, row in rows().items():
        for word in (*row.allowed, *row.refused):
            assert any(matches(name, word) for name in known), f"{part}: there is no {word}"


def test_no_two_modules_and_no_two_folders_import_each_other() -> None:
    graph = module_graph()
    folders = [group for part in folder_graphs(graph).values() for group in circles(part)]
    assert [*circles(graph), *folders] == []


def test_every_field_of_the_wire_is_explained() -> None:
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        explained = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.strip()
            if text.startswith("//"):
                explained = True
            elif re.match(r"(repeated |optional )?[\w.<>, ]+ \w+ = \d+;", text):
                # Fields that belong together may share the comment above the first.
                assert explained, f"{path.name}:{number}: {text} has no comment"
            elif not text or text == "}":
                explained = text == "}" and explained


def test_generated_code_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tools.protogen", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_version_and_changelog_agree() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "node/fednode/__init__.py").read_text())
    assert version is not None
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{version.group(1)}]" in changelog


def test_each_source_root_holds_its_package_and_nothing_else() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert hatch["dev-mode-dirs"] == list(ROOTS)
    wheel = hatch["targets"]["wheel"]
    assert wheel["packages"] == [f"{root}/{package}" for root, package in ROOTS.items()]
    assert wheel["force-include"] == {
        source: source.replace("configs", "fednode/configs") for source in wheel["force-include"]
    }
    for root, package in ROOTS.items():
        for path in tracked(f"{root}/*.py"):
            assert path.relative_to(ROOT / root).parts[0] == package, path


def test_no_module_is_loaded_under_two_names() -> None:
    """With the repository's root on sys.path, `import node` would work, and load all anew."""
    for path in SOURCES:
        for target in imports_of(path):
            assert target.split(".")[0] not in {"node", "bootstrap"}, f"{path}: {target}"
    files: dict[str, str] = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve() in SOURCES and name != "__main__":
            assert files.setdefault(str(Path(file).resolve()), name) == name, file


def test_no_registry_is_named() -> None:
    hosts = re.compile("|".join(("pypi" + r"\.org", "files.python" + "hosted", r"registry\.npm")))
    for path in (*SOURCES, *tracked("*.md"), *tracked("*.toml"), *tracked("*.txt")):
        assert not hosts.search(path.read_text(errors="replace")), path


def test_links_in_documents_lead_somewhere() -> None:
    for path in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_module_has_a_test_where_one_looks_for_it() -> None:
    """tests/unit mirrors the product's tree, and the test imports the module that it is about."""
    untested = [
        f"{name}: {fault}"
        for name in sorted(product())
        if (fault := mirror_fault(name)) is not None
    ]
    assert not untested, "\n".join(untested)


def test_the_list_of_tests_that_lie_elsewhere_is_short_and_true() -> None:
    assert len(ELSEWHERE) <= 40
    for name in ELSEWHERE:
        assert name in product(), f"there is no module {name}; take it off the list"
        assert not mirrored(name), f"{name} has a test in its place; take it off the list"


def test_paths_in_documents_exist() -> None:
    roots = "node/fednode|bootstrap/fednode_bootstrap|tests|tools|docs|configs|proto"
    for path in tracked("*.md"):
        if path.name == "CHANGELOG.md":  # it names what was there at the time
            continue
        for target in re.findall(rf"`((?:{roots})/[\w./-]+)(?:::\w+)?`", path.read_text()):
            assert (ROOT / target).exists(), f"{path.name} names {target}"
