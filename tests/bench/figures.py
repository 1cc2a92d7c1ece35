"""Print what a benchmark measured as a table, and keep it as JSON under runs/bench."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parents[2] / "runs" / "bench"


def publish(name: str, title: str, rows: Sequence[Mapping[str, str | float]]) -> None:
    """Print rows (all with the same keys) and write runs/bench/<name>.json."""
    grid = Table(title=title, title_justify="left")
    for number, key in enumerate(rows[0]):
        grid.add_column(key, justify="right" if number else "left")
    for row in rows:
        grid.add_row(*(one if isinstance(one, str) else f"{one:.4g}" for one in row.values()))
    Console().print(grid)
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {
        "title": title,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "cpus": os.cpu_count()},
        "load_1_min": os.getloadavg()[0],
        "rows": [dict(row) for row in rows],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
