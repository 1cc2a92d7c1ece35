"""The introducer's log: lines with counts, few enough, and printable."""

from __future__ import annotations

from fednode.admission.calls import LINES_A_MINUTE, CallLog


def test_a_line_tells_the_call_and_all_counts() -> None:
    lines: list[str] = []
    log = CallLog(lines.append)
    log.add("enrolled", "enrolled 'a'")
    log.add("refused", "refused 'b\x1b[2J': the token is wrong")
    assert lines[0].endswith("enrolled 'a' [so far: 1 enrolled]")
    assert lines[1].endswith("the token is wrong [so far: 1 enrolled, 1 refused]")
    assert "\x1b" not in lines[1]


def test_a_flood_is_counted_and_fills_no_disk() -> None:
    lines: list[str] = []
    now = [0.0]
    log = CallLog(lines.append, lambda: now[0])
    for _ in range(LINES_A_MINUTE + 40):
        log.add("refused", "x")
    assert len(lines) == LINES_A_MINUTE
    now[0] = 60.0
    log.add("refused", "x")
    assert lines[-1].endswith(f"[so far: {LINES_A_MINUTE + 41} refused]")
