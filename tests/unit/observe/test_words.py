"""The sentences that a node records, in one table by part; `pytest -s` prints it for a reader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fednode

ROOT = Path(fednode.__file__).parent
PARTS = ("core", "runtime", "observe", "app")
WORDS_MAX = 10
"""Most words of an ordinary event, the names and numbers in it included."""
PRIVATE = re.compile(r"\b(stage|statements?|rows? of|digest|witness|voucher)\b")
"""Words of the code, which a reader of the log does not know."""


def text_of(node: ast.AST, names: dict[str, ast.AST]) -> str:
    """Return a text of the code, with X in place of what is filled in."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value, names) for value in values)
        case ast.BoolOp(values=values):
            return text_of(values[-1], names)
        case ast.Name(id=name) if name in names:
            return text_of(names[name], {})
    return "X"


def records() -> Iterator[tuple[str, str, str, str]]:
    """Yield the file, kind, level and text of each record that the code makes."""
    files = [file for part in PARTS for file in sorted((ROOT / part).rglob("*.py"))]
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)):
            names: dict[str, ast.AST] = {
                target.id: one.value
                for one in ast.walk(function)
                if isinstance(one, ast.Assign)
                for target in one.targets
                if isinstance(target, ast.Name)
            }
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in {"Record", "ev.Record"}:
                    kind, text, *level = (text_of(one, names) for one in call.args)
                    place = str(file.relative_to(ROOT))
                    yield place, kind, level[0] if level else "info", text


def test_a_record_is_understood_at_once_and_an_ordinary_event_is_short() -> None:
    table = sorted(records())
    print(*("  ".join(row) for row in table), sep="\n")
    assert len({kind for _, kind, _, _ in table}) > 30, "the table has lost its rows"
    assert [row for row in table if PRIVATE.search(row[3])] == []
    ordinary = [row for row in table if row[2] == "info"]
    assert [row for row in ordinary if len(row[3].split()) > WORDS_MAX] == []
