"""Hold the house rules: who may import whom, sizes, generated code, and what must never appear.

Goal: someone who opens the tree sees the architecture, and it stays true. Method: read every Python
file's syntax tree and compare with the tables below (docs/architecture.md explains them).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# What each part of node/ may import from node/ besides itself, node.errors and settings modules.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "node.core": (),
    "node.policies.*.exchange": ("node.core",),
    "node.policies.*.objective": ("node.core", "node.clip", "node.learn"),
    "node.wire": ("node.core",),
    "node.transports": ("node.core", "node.wire.gen"),
    "node.identity": ("node.core", "node.files", "node.transports.address", "node.runtime.disk"),
    "node.data": ("node.core",),
    "node.clip": ("node.core",),
    "node.learn": ("node.core", "node.clip", "node.data", "node.files"),
    "node.runtime": (
        "node.core",
        "node.wire",
        "node.transports",
        "node.learn.learner",
        "node.identity",
        "node.registry",
        "node.units",
        "node.data.images",
    ),
    "node.sim": (
        "node.core",
        "node.wire",
        "node.transports.framing",
        "node.learn.learner",
        "node.learn.closed_form",
        "node.registry",
    ),
}
ALWAYS = ("node.errors", "node.core.settings", "node.clip.settings", "node.learn.settings")

NAMED = ("node.data.base", "node.__version__", "node.transports.base")

# Third-party packages with a fixed place: prefix of the module -> where it may be imported.
PLACES: dict[str, tuple[str, ...]] = {
    "torch": (
        "node.clip",
        "node.learn",
        "node.policies.*.objective",
        "bootstrap.pretrain",
        "tests",
    ),
    "open_clip": ("node.clip", "bootstrap.pretrain", "tests"),
    "grpc": (
        "node.transports.grpc",
        "node.transports.calls",
        "node.transports.exchange",
        "node.runtime.status",
        "node.runtime.admin",
        "node.runtime.client",
        "node.wire.gen",
        "bootstrap",
        "tests",
    ),
    "pydantic": ("node.config", "tests"),
    "cryptography": (
        "node.identity",
        "node.transports.tls",
        "node.transports.session",
        "bootstrap",
        "tests",
    ),
    "OpenSSL": ("node.transports.tls", "node.transports.session"),
    "aiohttp": ("node.runtime.web", "node.runtime.page", "tests"),
    "jinja2": ("node.runtime.page",),
    "prometheus_client": ("node.runtime.metrics", "tests"),
    "opentelemetry": ("node.runtime.otel", "tests"),
    "pickle": (),
}
WITHOUT_TORCH = (
    *("node.learn.learner", "node.learn.settings", "node.learn.closed_form", "node.learn.cache"),
)

# The core decides; it never looks at a clock, draws entropy, or touches the world.
PURE = ("node.core", "node.policies.*.exchange")
PURE_MAY_IMPORT = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fnmatch", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "numpy", "operator", "random", "re",
    "statistics", "string", "types", "typing", "node",
}  # fmt: skip


def tracked(pattern: str) -> list[Path]:
    """Return the files of the checkout that git tracks or would track, generated code left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.exists() and "/wire/gen/" not in str(path)]


SOURCES = tracked("*.py")
IDS = [str(path.relative_to(ROOT)) for path in SOURCES]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> set[str]:
    """Return the dotted names that a module imports, wherever in the file it does so."""
    found: set[str] = set()
    for entry in ast.walk(tree):
        if isinstance(entry, ast.Import):
            found |= {alias.name for alias in entry.names}
        elif isinstance(entry, ast.ImportFrom) and entry.module:
            base = entry.module
            found |= {f"{base}.{alias.name}" for alias in entry.names}
    return found


def matches(name: str, pattern: str) -> bool:
    """Tell whether a module lies at or below a pattern, where "*" stands for one part."""
    inside = re.escape(pattern).replace(r"\*", r"[^.]+")
    return re.match(rf"{inside}(\.|$)", name) is not None


def anywhere(name: str, patterns: tuple[str, ...]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_imports_follow_the_architecture(path: Path) -> None:
    name = module_name(path)
    wanted = imports(ast.parse(path.read_text()))
    for pattern, allowed in MAY_IMPORT.items():
        if not matches(name, pattern):
            continue
        # A part may import itself; a policy's file the other files of its own folder.
        own = (name.rpartition(".")[0],) if "*" in pattern else (pattern,)
        for target in sorted(wanted):
            if matches(target, "node") and "." in target:
                fine = (
                    *allowed,
                    *ALWAYS,
                    *own,
                    "node.data.base",
                    "node.__version__",
                    "node.transports.base",
                )
                assert anywhere(target, fine), f"{name} must not import {target}"
    for package, places in PLACES.items():
        for target in sorted(wanted):
            if matches(target, package):
                assert anywhere(name, places), f"{package} has no place in {name}"
                assert not (package == "torch" and anywhere(name, WITHOUT_TORCH)), name


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_core_is_pure(path: Path) -> None:
    name = module_name(path)
    if not anywhere(name, PURE):
        return
    tree = ast.parse(path.read_text())
    for target in sorted(imports(tree)):
        assert target.split(".")[0] in PURE_MAY_IMPORT, f"{name} imports {target}"
    for call in ast.walk(tree):
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name):
            used = f"{call.value.id}.{call.attr}"
            drawn = call.value.id == "random" and call.attr != "Random"
            assert not drawn, f"{name}:{call.lineno} draws from the global generator: {used}"
            assert used != "np.random", f"{name}:{call.lineno} uses numpy's generator"


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_sizes(path: Path) -> None:
    text = path.read_text()
    lines = len(text.splitlines())
    assert lines <= LINES_MAX, f"{path.name} has {lines} lines, the limit is {LINES_MAX}"
    for part in ast.walk(ast.parse(text)):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (part.end_lineno or part.lineno) - part.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{part.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_nothing_forbidden(path: Path) -> None:
    name = module_name(path)
    tree = ast.parse(path.read_text())
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
        if name.startswith("tests") and called in {"time.sleep", "asyncio.sleep"}:
            assert ast.unparse(part.args[0]) == "0", f"{name}:{part.lineno}: a test sleeps"


@pytest.mark.parametrize("path", SOURCES, ids=IDS)
def test_modules_and_public_names_say_what_they_are(path: Path) -> None:
    name = module_name(path)
    if name.startswith("tests") or path.stat().st_size == 0:
        return
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{name} has no docstring"
    for part in tree.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            public = not part.name.startswith("_")
            assert not public or ast.get_docstring(part), f"{name}.{part.name} has no docstring"


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
        [sys.executable, "-m", "bootstrap.protogen", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_version_and_changelog_agree() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "node/__init__.py").read_text())
    assert version is not None
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{version.group(1)}]" in changelog


def test_no_registry_is_named() -> None:
    hosts = re.compile("|".join(("pypi" + r"\.org", "files.python" + "hosted", r"registry\.npm")))
    for path in (*SOURCES, *tracked("*.md"), *tracked("*.toml"), *tracked("*.txt")):
        assert not hosts.search(path.read_text(errors="replace")), path


def test_links_in_documents_lead_somewhere() -> None:
    for path in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
