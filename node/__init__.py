"""fednode: a peer-to-peer daemon for federated prompt tuning of a frozen CLIP model."""

from __future__ import annotations

__version__ = "0.1.0"
