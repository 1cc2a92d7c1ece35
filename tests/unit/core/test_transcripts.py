"""Scenes of a node in transcripts/*.txt: the effects of its events are those written there.

`pytest tests/unit/core/test_transcripts.py --rewrite-transcripts` writes them anew (player.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.core.player import play

FOLDER = Path(__file__).parent / "transcripts"
SCENES = [
    pytest.param(path, "# " + scene.rstrip(), id=f"{path.stem}: {scene.splitlines()[0]}")
    for path in sorted(FOLDER.glob("*.txt"))
    for scene in ("\n" + path.read_text()).split("\n# ")[1:]
]


@pytest.mark.parametrize(("path", "scene"), SCENES)
def test_a_scene(path: Path, scene: str, pytestconfig: pytest.Config) -> None:
    today = play(scene)
    if pytestconfig.getoption("rewrite_transcripts"):
        path.write_text(path.read_text().replace(scene, today))
    else:
        assert today.splitlines() == scene.splitlines()
