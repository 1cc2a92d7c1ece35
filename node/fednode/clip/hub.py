"""The hub that open_clip's tags are fetched from: asked once whether it answers, before any wait.

Without a network the hub's library tries each file six times with growing pauses, 100 s in all,
and writes a line for each try, although the weights may be in its cache.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import huggingface_hub
from huggingface_hub import constants

from fednode.core import foreign
from fednode.errors import ModelError

ANSWER_S: Final = 5.0
"""How long the hub may take to answer the first question."""
SAID_MAX: Final = 160
"""Characters of another library's explanation that a sentence takes over."""
_MANY: Final = "Multiple checkpoints found"
"""How open_clip's warning begins about a folder of which fednode chooses the weights itself."""
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


def folder(name: str, config: str, weights: Sequence[str], more: Sequence[str]) -> Path:
    """Return the folder with a repository's files, fetched if they are not in the hub's cache.

    name: OWNER/NAME. Only `config`, the first of `weights` that exists, files of sizes and the
    files of `more` are fetched. Raise ModelError if they cannot be had.
    """
    silent = silence()
    try:
        if silent or constants.HF_HUB_OFFLINE:
            return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
        files = huggingface_hub.HfApi().list_repo_files(name)
        first = next((file for file in weights if file in files), "")
        others = [file for file in files if any(fnmatch(file, pattern) for pattern in more)]
        wanted = [config, "config.json", "special_tokens_map.json", *others, first]
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))
    except Exception as fault:
        # The hub's library fails in many ways that fednode does not control.
        remedy = "connect it once, or download the files and set model.name to local-dir:FOLDER."
        if silent:
            raise ModelError(
                f"the model hf-hub:{name} is not on this machine, and {constants.ENDPOINT} does "
                f"not answer ({foreign.line(silent, SAID_MAX)}): {remedy}"
            ) from fault
        reason = foreign.line(" ".join(str(fault).split()), SAID_MAX)
        raise ModelError(
            f"the model hf-hub:{name} cannot be had ({type(fault).__name__}: {reason}): check the "
            "name, or download the files and set model.name to local-dir:FOLDER."
        ) from fault


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
    return not str(record.msg).startswith((_UNTRUE, _SAID_BELOW, _MANY))
