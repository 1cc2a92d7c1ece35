"""Three real daemons on a made-up folder of BiomedCLIP's own configuration, without the hub."""

from __future__ import annotations

import asyncio
import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from PIL import Image
from safetensors import safe_open

from tests.daemons import Nodes, finished
from tests.unit.clip import folders

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
COLOURS = {"effusion": (230, 220, 40), "cardiomegaly": (20, 60, 200), "no finding": (30, 30, 30)}
GUARD_S = 400.0
ROUNDS = 3


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Stand where the hub is for every process of this test; return what it is asked."""
    asked: list[bytes] = []

    class Listener(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(200))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Listener) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield asked
        server.shutdown()


def run(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which has this exit code."""
    said = subprocess.run(
        [sys.executable, "-m", "fednode.cli", *words], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"HOME": str(folder)}, timeout=GUARD_S, check=False,
    )  # fmt: skip
    assert said.returncode == code, said
    return said


def draw(folder: Path, shift: int) -> None:
    """Put eight images of each class into a folder."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(8):
            shade = tuple(min(255, part + 2 * number + shift) for part in colour)
            Image.new("RGB", (224, 224), shade).save(folder / name / f"{number}.png")


def settings(folder: Path) -> tuple[str, ...]:
    """Return the words that say model, cache and tuning of every node."""
    said = (
        f"model.name=local-dir:{folder / 'biomed'}", f"cache.folder={folder / 'cache'}",
        "policy.name=promptfl", f"rounds.max={ROUNDS}", "tuning.context_length=auto",
        "data.test=0.3",
    )  # fmt: skip
    return tuple(word for one in said for word in ("--set", one))


async def test_a_mesh_of_three_tunes_prompts_of_biomedclip_offline(
    tmp_path: Path, hub: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folders.biomedical(tmp_path / "biomed", config=folders.REAL)
    nodes = Nodes(tmp_path, "abc", settings(tmp_path), tls=False)
    own = {name: ("--set", f"data.path={tmp_path / 'images' / name}") for name in "abc"}
    for shift, name in enumerate("abc"):
        draw(tmp_path / "images" / name, 5 * shift)
    row = run(tmp_path, "check", "--model", f"local-dir:{tmp_path / 'biomed'}", "--format", "json")
    (taken,) = json.loads(row.stdout)
    assert (taken["fault"], taken["text"], taken["deep"], taken["visual"]) == ("", "", True, True)
    assert (taken["features"], taken["reads"], taken["patches"]) == (512, 256, True)
    assert taken["template"] == "this is a photo of {}"
    assert "Nothing is wrong." in run(tmp_path, "check", *nodes.words("a", *own["a"])[1:]).stdout
    async with AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(nodes.running(name, *own[name]))
        for name in "abc":
            reply = await nodes.until(name, finished)
            assert (reply.rounds_merged, reply.rounds_run) == (ROUNDS, ROUNDS)
            assert str(tmp_path / "biomed") not in str(reply)
    state = str(tmp_path / "a")
    measured = await asyncio.to_thread(run, tmp_path, "eval", "--state", state)
    assert "effusion" in measured.stdout or "own" in measured.stdout
    image = str(tmp_path / "images" / "b" / "effusion" / "7.png")
    said = await asyncio.to_thread(
        run, tmp_path, "predict", "--state", state, "--format", "json", image
    )
    shares = json.loads(said.stdout)["classes"]
    assert set(shares) == set(COLOURS)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-6)
    out = tmp_path / "p.safetensors"
    await asyncio.to_thread(run, tmp_path, "export", "--state", state, str(out))
    assert str(tmp_path).encode() not in out.read_bytes()
    with safe_open(out, "np") as opened:
        assert opened.get_tensor("context").shape == (16, 32)
    assert not hub
    run(tmp_path, "check", "--model", "hf-hub:somebody/biomed", code=2)
    assert hub, "whatever asks the hub asks the test"
