"""Find where a test sleeps: by name, by an alias, or by waiting for an event that nobody sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}
EVENTS = {"threading.Event", "asyncio.Event", "multiprocessing.Event"}


def sleeps(tree: ast.AST) -> list[int]:
    """Return the lines that sleep; asyncio.sleep(0) only lets other tasks run, and is none."""
    names = _names(tree)
    events = {
        target.id
        for part in ast.walk(tree)
        if isinstance(part, ast.Assign) and _is_event(part.value, names)
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for part in ast.walk(tree):
        if isinstance(part, ast.Call) and _dotted(part.func, names) in SLEEPS:
            if [ast.unparse(one) for one in part.args] != ["0"]:
                found.append(part.lineno)
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            found += _waits(part.value, events, names)
    return sorted(found)


def _waits(call: ast.Call, events: set[str], names: dict[str, str]) -> Iterator[int]:
    """Yield a call's line if it waits for an event so many seconds and ignores the answer."""
    given = bool(call.args or call.keywords)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "wait" and given:
        held = call.func.value
        if _is_event(held, names) or (isinstance(held, ast.Name) and held.id in events):
            yield call.lineno


def _is_event(part: ast.AST, names: dict[str, str]) -> bool:
    return isinstance(part, ast.Call) and _dotted(part.func, names) in EVENTS


def _names(tree: ast.AST) -> dict[str, str]:
    """Return what each imported name stands for."""
    names: dict[str, str] = {}
    for part in ast.walk(tree):
        if isinstance(part, ast.Import):
            names |= {one.asname or one.name: one.name for one in part.names}
        elif isinstance(part, ast.ImportFrom) and part.module:
            names |= {one.asname or one.name: f"{part.module}.{one.name}" for one in part.names}
    return names


def _dotted(part: ast.AST, names: dict[str, str]) -> str:
    """Return the dotted name of a function, with aliases replaced by what they stand for."""
    if isinstance(part, ast.Attribute):
        return f"{_dotted(part.value, names)}.{part.attr}"
    return names.get(part.id, part.id) if isinstance(part, ast.Name) else ""
