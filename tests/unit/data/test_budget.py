"""The memory of decoding: threads share it, no thread starves, and heads of files have a limit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fednode.data.budget import HEADS, Budget, Head, TooMuch, with_head
from fednode.data.files import opened
from fednode.data.pixels import Unusable


class Watched(threading.Condition):
    """A condition that tells when a thread begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.set()
        return super().wait(timeout)


class Never(threading.Condition):
    """A condition on which nobody may wait, because nobody would wake the thread."""

    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError("a thread waits for what never comes")


def test_threads_never_hold_more_than_there_is() -> None:
    budget, lock, held, most = Budget(100), threading.Lock(), [0], [0]

    def work(number: int) -> None:
        need = 1 + number * 37 % 100
        with budget.taken(need, "a test"):
            with lock:
                held[0] += need
                most[0] = max(most[0], held[0])
            with lock:
                held[0] -= need

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert most[0] <= 100
    with budget.taken(100, "a test"):
        pass


def test_who_asks_for_much_is_not_overtaken() -> None:
    budget, order, change = Budget(10), list[str](), Watched()
    budget._change = change
    with ThreadPoolExecutor(2) as pool:
        with budget.taken(5, "the first"):

            def much() -> None:
                with budget.taken(10, "much"):
                    order.append("much")

            def little() -> None:
                with budget.taken(1, "little"):
                    order.append("little")

            pool.submit(much)
            assert change.waits.wait(10), "it waits, because the first holds too much"
            pool.submit(little)
        pool.shutdown(wait=True)
    assert order == ["much", "little"]


def test_what_never_fits_is_refused_at_once_and_named() -> None:
    budget = Budget(1 << 20)
    budget._change = Never()
    with (
        pytest.raises(Unusable, match=r"^too large: a scan takes 2 MiB .* the limit is 1$"),
        budget.taken(2 << 20, "a scan"),
    ):
        pass


def test_a_fault_gives_back_what_was_held() -> None:
    budget = Budget(1)
    with pytest.raises(OSError, match="damaged"), budget.taken(1, "a test"):
        raise OSError("damaged")
    with budget.taken(1, "a test"):
        pass


def test_a_long_head_is_read_with_more_room_and_a_longer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for size, fits in ((10, True), (HEADS[0] + 1, True), (HEADS[1] + 1, False)):
        path.write_bytes(bytes(size))
        with opened(path, Head) as file:
            if fits:
                assert len(with_head(file, file.read)) == size
            else:
                with pytest.raises(TooMuch, match="over 8 MiB"):
                    with_head(file, file.read)
    with opened(path, Head) as file:
        assert with_head(file, lambda: file.read(3)) == bytes(3)
        assert len(file.read()) == HEADS[1] - 2, "once the head is read, all can be read"


def test_bytes_that_are_skipped_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as made:
        made.truncate(1 << 30)
    with opened(path, Head) as file:

        def end() -> bytes:
            file.seek(-3, 2)
            return file.read()

        assert with_head(file, end) == bytes(3)
