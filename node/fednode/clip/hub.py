"""The hub that open_clip's tags are fetched from: asked once whether it answers, before any wait.

Without a network the hub's library tries each file six times with growing pauses, 100 s in all,
and writes a line for each try, although the weights may be in its cache.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

import huggingface_hub
from huggingface_hub import constants

ANSWER_S: Final = 5.0
"""How long the hub may take to answer the first question."""
_UNTRUE: Final = "No pretrained weights loaded"
"""How open_clip's warning begins about a model whose weights fednode puts in afterwards."""
_SAID_BELOW: Final = "Failed to download weights"
"""How open_clip's record begins about a failure that fednode says in its own words."""


def silence() -> str:
    """Return why the hub does not answer; "" if it does, or if the user has turned it off."""
    if constants.HF_HUB_OFFLINE:
        return ""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=ANSWER_S)
    except Exception as fault:  # of whatever library carries the request
        return " ".join(str(fault).split()) or type(fault).__name__
    return ""


@contextlib.contextmanager
def offline(now: bool) -> Iterator[None]:
    """Use only what the hub's cache holds, if `now`, until the block ends."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or now
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def without_records() -> Iterator[None]:
    """Drop open_clip's records about weights: a false warning, and a fault that is said elsewhere.

    open_clip warns through the root logger, and the first warning there gives that logger a handler
    of its own. So a handler that writes nothing stands there meanwhile.
    """
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    root.addFilter(_kept)
    try:
        yield
    finally:
        root.removeFilter(_kept)
        root.removeHandler(nothing)


def _kept(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith((_UNTRUE, _SAID_BELOW))
