"""The wheel holds two packages, `fednode` and `fednode_bootstrap`, with all that commands need.

Method: build the wheel from this checkout, install it into an empty folder beside the packages that
are at hand, and run it in another empty folder, where neither the checkout nor its settings are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import fednode

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
GUARD_S = 600.0
PACKAGES = {"fednode", "fednode_bootstrap"}
NODE_A = ("--peers", "peers.yaml", "--config", "node.yaml", "--name", "a")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "node", "bootstrap", "configs")


def run(words: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a program; return what it prints."""
    ended = subprocess.run(
        [str(word) for word in words], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=GUARD_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, so that the checkout stays as it is."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run([*pip, "--wheel-dir", copy / "wheels", copy], copy)
    (made,) = (copy / "wheels").glob("fednode-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the wheel into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run([*pip, "--target", folder, wheel], folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the wheel into an empty virtual environment; return the environment's programs.

    The wheel's dependencies are 5.5 GB to download. So a .pth file names the folders of packages at
    hand instead. Python reads no .pth file there, so the editable install of this checkout is out.
    """
    folder = tmp_path_factory.mktemp("venv")
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder)
    programs = folder / "bin"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run([programs / "python", "-c", asked], folder).strip())
    at_hand = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "at_hand.pth").write_text("\n".join(at_hand))
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run([*pip, "--ignore-installed", wheel], folder)
    yield programs
    shutil.rmtree(folder)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Return an empty folder, beside an empty HOME."""
    for name in ("home", "empty"):
        (tmp_path / name).mkdir()
    return tmp_path / "empty"


def surroundings(folder: Path, **more: str) -> dict[str, str]:
    """Return the variables with which fednode finds neither the checkout nor the user's files."""
    home = folder.parent / "home"
    return {"PYTHONPATH": "", "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), **more}


def begin(fednode: Sequence[str | Path], folder: Path, **environment: str) -> Path:
    """Write settings for a mesh of one node; return their folder."""
    run([*fednode, "init", "m", "--nodes", "1"], folder, **environment)
    return folder / "m"


def run_a_node(python: str | Path, folder: Path, **environment: str) -> str:
    """Start node a of the files that `init` wrote; return its status after its last round."""
    module = (str(python), "-m", "fednode.cli")
    settings = ("rounds.max=3", "rounds.min_interval_s=0", "rounds.start.peers=0",
                "tuning.kind=closed-form")  # fmt: skip
    flags = [word for one in settings for word in ("--set", one)]
    run([python, "-m", "fednode.cli", "check", *NODE_A, *flags], folder, **environment)
    with (folder / "a.log").open("w") as log:
        daemon = subprocess.Popen(
            [*module, "start", *NODE_A, *flags], cwd=folder, env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + GUARD_S
        while "round 3 adopted" not in (log_file := (folder / "a.log").read_text()):
            assert daemon.poll() is None, log_file
            assert time.monotonic() < deadline, log_file
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(0.1)
        shown = run([python, "-m", "fednode.cli", "status", "a"], folder, **environment)
        assert "finished" in shown
        return shown
    finally:
        daemon.terminate()
        daemon.communicate(timeout=GUARD_S)


def tops(shown: str) -> set[str]:
    """Return the top-level folders in the output of `pip show -f`, metadata and programs apart."""
    files = shown.partition("\nFiles:\n")[2].split()
    folders = {path.split("/")[0] for path in files if not path.startswith("..")}
    return {name for name in folders if not name.endswith(".dist-info") and name != "bin"}


def test_the_wheel_holds_both_packages_and_no_tool(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    folders = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert folders == PACKAGES
    shipped = ("node.yaml", "peers.yaml", "demo/node.yaml")
    configs = [f"configs/{name}" for name in (*shipped, "schema/node.json", "schema/peers.json")]
    for wanted in ("cli.py", "lab/demo/demo.py", "py.typed", *configs):
        assert f"fednode/{wanted}" in names
    assert not [name for name in names if "pretrain" in name or "tests" in name]


def test_the_wheel_has_the_version_of_the_changelog(wheel: Path) -> None:
    """With changes under [Unreleased] it is the version of the next release, else of the last."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version = wheel.name.split("-")[1]
    assert version == fednode.__version__
    released = [tuple(map(int, one.split("."))) for one in headings if one != "Unreleased"]
    if headings[0] == "Unreleased":
        assert all(one < tuple(map(int, version.split("."))) for one in released)
    else:
        assert headings[0] == version


def test_the_installed_package_works_in_an_empty_folder(installed: Path, empty: Path) -> None:
    paths = surroundings(empty, PYTHONPATH=str(installed))
    program = "import fednode, fednode.lab.demo.demo as demo; print(fednode.__file__, demo.CONFIG)"
    for path in run([sys.executable, "-c", program], empty, **paths).split():
        assert Path(path).is_relative_to(installed)
        assert Path(path).is_file()
    assert (
        tops(run([sys.executable, "-m", "pip", "show", "-f", "fednode"], empty, **paths))
        == PACKAGES
    )
    command = (sys.executable, "-m", "fednode.cli")
    version = f"fednode, version {fednode.__version__}\n"
    assert run([*command, "--version"], empty, **paths) == version
    schema = run([*command, "check", "--schema", "node"], empty, **paths)
    assert "properties" in json.loads(schema)


def test_a_node_runs_from_a_wheel_whose_laboratory_was_deleted(
    installed: Path, empty: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "without"
    shutil.copytree(installed, copy)
    shutil.rmtree(copy / "fednode/lab")
    paths = surroundings(empty, PYTHONPATH=str(copy))
    command = (sys.executable, "-m", "fednode.cli")
    assert "experiment" in run([*command, "--help"], empty, **paths)
    mesh = begin(command, empty, **paths)
    assert "round" in run_a_node(sys.executable, mesh, **paths)


@pytest.mark.slow
def test_the_first_hour_from_the_wheel_in_a_venv(venv: Path, empty: Path) -> None:
    paths = surroundings(empty)
    program = "import fednode; print(fednode.__file__, fednode.load.__module__)"
    path, module = run([venv / "python", "-c", program], empty, **paths).split()
    assert Path(path).is_relative_to(venv.parent)
    assert module == "fednode.api"
    assert (
        tops(run([venv / "python", "-m", "pip", "show", "-f", "fednode"], empty, **paths))
        == PACKAGES
    )
    mesh = begin([venv / "fednode"], empty, **paths)
    assert "Nothing is wrong." in run([venv / "fednode", "check", *NODE_A], mesh, **paths)
    assert "round" in run_a_node(venv / "python", mesh, **paths)
    assert "Written: runs/demo" in run([venv / "fednode", "demo", "--quick"], empty, **paths)
    assert (empty / "runs/demo/report.json").is_file()


def test_beside_a_clone_import_finds_the_package(tmp_path: Path) -> None:
    """The folder of a clone is named fednode, too: Python must not take it for the package."""
    clone, site = tmp_path / "fednode", tmp_path / "site"
    clone.mkdir()
    for name in SOURCES:
        (clone / name).symlink_to(ROOT / name)
    build = f"from hatchling.build import build_editable; print(build_editable({str(site)!r}))"
    made = run([sys.executable, "-c", build], clone).split()[-1]
    zipfile.ZipFile(site / made).extractall(site)
    # -S keeps out this checkout's own install; the packages at hand come without their .pth files.
    code = (
        f"import site, sys; sys.path += {[one for one in sys.path if 'site-packages' in one]!r}; "
        f"site.addsitedir({str(site)!r}); import fednode; print(fednode.load, fednode.__file__)"
    )
    said = run([sys.executable, "-S", "-c", code], tmp_path, PYTHONPATH="")
    assert said.startswith("<function load")
    assert said.split()[-1] == str(clone / "node/fednode/__init__.py")
