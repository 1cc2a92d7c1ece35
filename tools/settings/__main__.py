"""Generate every file that explains settings, or check that these files are up to date.

python -m tools.settings            writes
python -m tools.settings --check    compares byte for byte; exit code 1 if files differ
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools import generated
from tools.settings.files import node_file, peers_file
from tools.settings.page import page
from tools.settings.schema import node_text, peers_text

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIGS: Final = ROOT / "configs"


def generate() -> dict[Path, bytes]:
    """Return the content of every generated file; raise RuntimeError for a field without a text."""
    found = {
        CONFIGS / "node.yaml": node_file(),
        CONFIGS / "peers.yaml": peers_file(),
        CONFIGS / "schema/node.json": node_text(),
        CONFIGS / "schema/peers.json": peers_text(),
        ROOT / "docs/settings.md": page(),
    }
    return {path: text.encode() for path, text in found.items()}


def main(arguments: list[str] | None = None) -> int:
    """Write or check the generated files; return the exit code."""
    return generated.main(
        __doc__,
        arguments,
        generate,
        lambda: CONFIGS.glob("schema/*"),
        "not what the code says; run `make settings`",
    )


if __name__ == "__main__":
    sys.exit(main())
