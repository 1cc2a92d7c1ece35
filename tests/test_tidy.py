"""Hold the house rules: who may import whom, and what must never appear.

Goal: someone who opens the tree sees the architecture, and it stays true. Method: read every Python
file's syntax tree and compare with the tables below (docs/architecture.md explains them).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy.table import faults, matches, misplaced, part_of, rows
from tests.tidy.tree import (
    ROOT,
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


def imports_follow_the_architecture(path: Path) -> None:
    name = module_name(path)
    wanted = imports_of(path)
    judged = (faults(name, wanted) if name in product() else []) + misplaced(name, wanted)
    assert not judged, "; ".join(judged)
    # So that a test that sleeps is found by the call's name.
    assert not wanted & {"time.sleep", "asyncio.sleep"}, f"{name} imports sleep by its name"


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


def nothing_forbidden(path: Path) -> None:
    name, test, text = module_name(path), path.is_relative_to(ROOT / "tests"), path.read_text()
    if "sleep" not in text and "torch.load" not in text:
        return
    for part in ast.walk(parsed(path)):
        if not isinstance(part, ast.Call) or getattr(part.func, "attr", "") not in (
            "load",
            "sleep",
        ):
            continue
        called, first = ast.unparse(part.func), "".join(map(ast.unparse, part.args[:1]))
        safe = any(ast.unparse(key) == "weights_only=True" for key in part.keywords)
        loads = called == "torch.load" and not safe
        assert not loads, f"{name}:{part.lineno}: torch.load without weights_only=True"
        # asyncio.sleep(0) only lets other tasks run.
        sleeps = called == "time.sleep" or (called == "asyncio.sleep" and first != "0")
        assert not (test and sleeps), f"{name}:{part.lineno}: a test sleeps"


def modules_say_what_they_are(path: Path) -> None:
    name = module_name(path)
    if path.is_relative_to(ROOT / "tests") or path.stat().st_size == 0:
        return
    assert ast.get_docstring(parsed(path)), f"{name} has no docstring"


@pytest.mark.parametrize(
    "holds",
    [
        imports_follow_the_architecture,
        pure_parts_draw_nothing,
        nothing_forbidden,
        modules_say_what_they_are,
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


def test_no_registry_is_named() -> None:
    hosts = re.compile("|".join(("pypi" + r"\.org", "files.python" + "hosted", r"registry\.npm")))
    for path in (*SOURCES, *tracked("*.md"), *tracked("*.toml"), *tracked("*.txt")):
        assert not hosts.search(path.read_text(errors="replace")), path


def test_links_in_documents_lead_somewhere() -> None:
    for path in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_paths_in_documents_exist() -> None:
    roots = "node/fednode|bootstrap/fednode_bootstrap|tests|tools|docs|configs|proto"
    for path in tracked("*.md"):
        if path.name == "CHANGELOG.md":  # it names what was there at the time
            continue
        for target in re.findall(rf"`((?:{roots})/[\w./-]+)(?:::\w+)?`", path.read_text()):
            assert (ROOT / target).exists(), f"{path.name} names {target}"
