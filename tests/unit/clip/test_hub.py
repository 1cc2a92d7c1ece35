"""The hub: asked once whether it answers, turned off for a while, its records dropped."""

from __future__ import annotations

import logging
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from fednode.clip import load


class Session:
    """A session of the hub's library that answers, or raises a fault."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.asked: list[tuple[str, float]] = []

    def head(self, url: str, timeout: float) -> None:
        self.asked.append((url, timeout))
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: made)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return made


def test_a_hub_that_answers_is_asked_once_with_a_short_limit(session: Session) -> None:
    assert load.unreachable_reason() == ""
    assert session.asked == [(constants.ENDPOINT, load.ANSWER_S)]


def test_a_hub_that_does_not_answer_is_quoted_in_one_line(session: Session) -> None:
    session.fault = OSError("no route\n  to host")
    assert load.unreachable_reason() == "no route to host"
    session.fault = TimeoutError()
    assert load.unreachable_reason() == "TimeoutError"


def test_a_user_who_turned_the_hub_off_is_not_asked_for_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load.unreachable_reason() == ""
    assert session.asked == []


@pytest.mark.parametrize(("before", "now"), [(False, True), (False, False), (True, False)])
def test_the_hub_is_off_inside_and_as_before_afterwards(
    before: bool, now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", before)

    def used() -> Any:
        with load.offline(now):
            assert (before or now) == constants.HF_HUB_OFFLINE
            raise KeyError

    with pytest.raises(KeyError):
        used()
    assert before == constants.HF_HUB_OFFLINE


def test_only_open_clip_s_records_about_weights_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, handlers = logging.getLogger(), list(logging.getLogger().handlers)
    with load.without_records():
        logging.warning("No pretrained weights loaded for model %s", "x")
        logging.warning("Failed to download weights for %s", "x")
        logging.warning("something else")
    assert caplog.messages == ["something else"]
    assert root.handlers == handlers
    logging.warning("No pretrained weights loaded afterwards")
    assert caplog.messages[-1] == "No pretrained weights loaded afterwards"
