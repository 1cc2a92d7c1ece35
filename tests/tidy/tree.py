"""Read the checkout: which Python files there are, and what each of them imports.

Every import counts, wherever it stands in the file: in a function, under TYPE_CHECKING, relative.
"""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOTS = {"node": "fednode", "bootstrap": "fednode_bootstrap"}  # source root: its import package


def tracked(pattern: str) -> list[Path]:
    """Return the files of the checkout that git tracks or would track, generated code left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.exists() and "/wire/gen/" not in str(path)]


SOURCES = tracked("*.py")


def module_name(path: Path) -> str:
    """Return a module's import name: node/ and bootstrap/ are the roots of a package each."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in ROOTS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a syntax tree, however deep; expressions hold none."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        yield one
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(one, name, None)
            waiting += below if isinstance(below, list) else []


def imports(tree: ast.AST, module: str, package: bool = False) -> set[str]:
    """Return the dotted names that a module imports.

    Args:
        tree: the module's syntax tree.
        module: its import name, from which relative imports start.
        package: whether it is a package's __init__.py.
    """
    names: set[str] = set()
    for statement in statements(tree):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            base = [statement.module] if statement.module else []
            if statement.level:
                up = statement.level - package
                parents = module.split(".")
                base = [*parents[: len(parents) - up], *base]
            names |= {".".join((*base, alias.name)) for alias in statement.names}
    return names


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports."""
    return frozenset(imports(parsed(path), module_name(path), path.name == "__init__.py"))


@functools.cache
def product() -> dict[str, Path]:
    """Return the modules of both source roots: import name -> file, generated code left out."""
    return {module_name(path): path for path in SOURCES if path.relative_to(ROOT).parts[0] in ROOTS}


def module_graph() -> dict[str, set[str]]:
    """Return which product modules each product module imports."""
    modules = product()
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        wanted = {
            target if target in modules else target.rpartition(".")[0]
            for target in imports_of(path)
        }
        graph[name] = {target for target in wanted if target in modules} - {name}
    return graph


def folder_graphs(graph: dict[str, set[str]]) -> dict[str, dict[str, set[str]]]:
    """Return, for each package, which of its children import which others.

    A child is a module or a folder with everything below it; a circle between two folders, or
    between a folder and a module beside it, is a circle in one of these graphs.
    """
    packages = [name for name, path in product().items() if path.name == "__init__.py"]
    graphs: dict[str, dict[str, set[str]]] = {}
    for package in packages:
        depth = package.count(".") + 2

        def child(name: str, package: str = package, depth: int = depth) -> str | None:
            inside = name.startswith(f"{package}.")
            return ".".join(name.split(".")[:depth]) if inside else None

        children: dict[str, set[str]] = {}
        for name, targets in graph.items():
            if (here := child(name)) is not None:
                there = {child(target) for target in targets} - {None, here}
                children.setdefault(here, set()).update(part for part in there if part)
        graphs[package] = children
    return graphs


def circles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of names that reach each other, sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in graph.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        reached[start] = seen
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached.get(other, ())))
        for name in graph
        if name in reached[name]
    }
    return sorted(groups)
