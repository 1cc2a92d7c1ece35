"""fednode: a peer-to-peer daemon for federated prompt tuning of a frozen CLIP model.

From Python: `fednode.load` returns a node's tuned prompts (node/fednode/api.py), and
`fednode.experiment` compares methods (node/fednode/lab/experiment/results.py).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fednode.api import Prompts, load

__all__ = ["Prompts", "__version__", "experiment", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the Python interface when it is first used."""
    if name in {"Prompts", "load"}:
        from fednode import api

        return getattr(api, name)
    if name == "experiment":
        return importlib.import_module("fednode.lab.experiment.results").experiment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names that are imported when they are first used, too."""
    return sorted({*globals(), *__all__})
