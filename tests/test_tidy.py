"""Hold the house rules: who may import whom, sizes, generated code, and what must never appear.

Goal: someone who opens the tree sees the architecture, and it stays true. Method: read every Python
file's syntax tree and compare with the tables below (docs/architecture.md explains them).
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOTS = {"node": "fednode", "bootstrap": "fednode_bootstrap"}  # source root: its import package
LINES_MAX = 400
FUNCTION_LINES_MAX = 70

# What each part of fednode may import from fednode besides itself, its errors and its settings;
# all names without the prefix "fednode.".
MAY_IMPORT: dict[str, str] = {
    "core": "",
    "policies.domains": "core",
    "policies.*.exchange": "core policies.domains",
    "policies.*.objective": "core clip learn policies.domains",
    "wire": "core",
    "transports": "core wire.gen",
    "identity": "core storage transports wire",
    "storage": "core",
    "data": "core",
    "clip": "core",
    "learn": "core clip data storage",
    "registry": "core policies",
    "settings": "core data identity.keys registry transports.address",
    "observe": (
        "core wire transports learn.learner identity storage runtime settings.output units "
        "data.decode"
    ),
    "runtime": "core wire transports learn.learner identity storage observe",
    "sim": "core wire transports.framing learn.learner learn.closed_form registry",
    "app": (
        "core data identity lab.track.node learn observe registry runtime settings storage "
        "transports wire"
    ),
    "terminal": "core learn observe units wire",
    "api": "app.saved clip core learn registry settings",
    "policy": "core",
    "objective": "clip core learn",
    "testing": "clip core data learn sim",
    "commands": (
        "api app clip core data identity lab.track.node learn observe registry runtime settings "
        "shipped storage terminal transports units wire"
    ),
    "lab": (
        "api app clip core data identity learn observe registry settings shipped sim storage "
        "terminal transports units wire fednode_bootstrap"
    ),
}
BOOTSTRAP = (
    "app clip commands core errors identity lab.track.node learn observe registry settings "
    "storage terminal transports wire"
)
ALWAYS = (
    "fednode.errors",
    "fednode.core.settings",
    "fednode.clip.settings",
    "fednode.learn.settings",
)

NAMED = ("fednode.data.base", "fednode.__version__", "fednode.transports.base")

# Third-party packages with a fixed place: prefix of the module -> where it may be imported.
PLACES: dict[str, tuple[str, ...]] = {
    "torch": (
        "fednode.clip",
        "fednode.learn",
        "fednode.lab",
        "fednode.policies.*.objective",
        "tools.pretrain",
        "tests",
    ),
    "open_clip": ("fednode.clip", "fednode.lab", "tools.pretrain", "tests"),
    "grpc": (
        "fednode.transports.grpc",
        "fednode.transports.calls",
        "fednode.transports.exchange",
        "fednode.observe.status",
        "fednode.observe.admin",
        "fednode.observe.client",
        "fednode.observe.others",
        "fednode.wire.gen",
        "fednode.identity.enrol",
        "fednode.lab.bench",
        "fednode_bootstrap",
        "tests",
    ),
    "pydantic": ("fednode.settings.read", "tools.settings.schema", "tests"),
    "cryptography": (
        "fednode.identity",
        "fednode.transports.tls",
        "fednode.transports.session",
        "fednode.lab.bench",
        "fednode_bootstrap",
        "tests",
    ),
    "OpenSSL": ("fednode.transports.tls", "fednode.transports.session", "tests"),
    "aiohttp": ("fednode.observe.web", "fednode.observe.page", "tests"),
    "jinja2": ("fednode.observe.page",),
    "prometheus_client": ("fednode.observe.metrics", "tests"),
    "opentelemetry": ("fednode.observe.otel", "tests"),
    "tensorboardX": ("fednode.lab.track.tensorboard", "tests"),
    "wandb": ("fednode.lab.track.wandb", "tests"),
    "mlflow": ("fednode.lab.track.mlflow", "tests"),
    "dask": ("fednode.lab.experiment.executors", "tests"),
    "distributed": ("fednode.lab.experiment.executors", "tests"),
    "ray": ("fednode.lab.experiment.executors", "tests"),
    "submitit": ("fednode.lab.experiment.executors",),
    "sklearn": ("fednode.learn.evaluation", "fednode.lab.explain_pictures"),
    "pickle": (),
}
WITHOUT_TORCH = (
    *(
        "fednode.learn.learner",
        "fednode.learn.settings",
        "fednode.learn.closed_form",
        "fednode.learn.cache",
    ),
)

# The core decides; it never looks at a clock, draws entropy, or touches the world.
PURE = ("fednode.core", "fednode.policies.*.exchange")
PURE_MAY_IMPORT = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "fnmatch", "functools",
    "hashlib", "heapq", "itertools", "json", "math", "numpy", "operator", "random", "re",
    "statistics", "string", "types", "typing", "fednode",
}  # fmt: skip


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


@functools.cache
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


def imports_follow_the_architecture(path: Path) -> None:
    name = module_name(path)
    wanted = imports(parsed(path))
    rows = {f"fednode.{part}": words for part, words in MAY_IMPORT.items()}
    for pattern, words in (rows | {"fednode_bootstrap": BOOTSTRAP}).items():
        if not matches(name, pattern):
            continue
        allowed = tuple(
            word if word in ROOTS.values() else f"fednode.{word}" for word in words.split()
        )
        # A part may import itself; a policy's file the other files of its own folder.
        own = (name.rpartition(".")[0],) if "*" in pattern else (pattern,)
        for target in sorted(wanted):
            if target.split(".")[0] in ROOTS.values() and "." in target:
                fine = (*allowed, *ALWAYS, *own, *NAMED)
                assert anywhere(target, fine), f"{name} must not import {target}"
    for package, places in PLACES.items():
        for target in sorted(wanted):
            if matches(target, package):
                assert anywhere(name, places), f"{package} has no place in {name}"
                assert not (package == "torch" and anywhere(name, WITHOUT_TORCH)), name


def core_is_pure(path: Path) -> None:
    name = module_name(path)
    if not anywhere(name, PURE):
        return
    tree = parsed(path)
    for target in sorted(imports(tree)):
        assert target.split(".")[0] in PURE_MAY_IMPORT, f"{name} imports {target}"
    for call in ast.walk(tree):
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name):
            used = f"{call.value.id}.{call.attr}"
            drawn = call.value.id == "random" and call.attr != "Random"
            assert not drawn, f"{name}:{call.lineno} draws from the global generator: {used}"
            assert used != "np.random", f"{name}:{call.lineno} uses numpy's generator"


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
        if name.startswith("tests") and called in {"time.sleep", "asyncio.sleep"}:
            assert ast.unparse(part.args[0]) == "0", f"{name}:{part.lineno}: a test sleeps"


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
        core_is_pure,
        sizes,
        nothing_forbidden,
        modules_and_public_names_say_what_they_are,
    ],
)
def test_every_file(holds: Callable[[Path], None]) -> None:
    faults = []
    for path in SOURCES:
        try:
            holds(path)
        except AssertionError as fault:
            faults.append(f"{path.relative_to(ROOT)}: {fault}")
    assert not faults, "\n".join(faults)


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
        for target in imports(parsed(path)):
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
