"""Settings of a node's output for people and tools: log and page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fednode.core.settings import STRICT


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log on standard error and in a file."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is shown; debug shows each message."""
    format: Literal["auto", "text", "json"] = "auto"
    """Format on standard error: text for people, json for one object per line, or auto for text
    on a terminal and json elsewhere. fednode.log in the state directory is always JSON."""


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The node's page and its metrics, over HTTP."""

    __pydantic_config__: ClassVar[dict[str, str]] = STRICT

    listen: str | None = "127.0.0.1:0"
    """host:port of the page and of /metrics. Port 0: any free port, which `fednode status` names.
    Beyond loopback, `token` must be set. null: neither page nor metrics."""
    token: str | None = None
    """A secret of at least 16 characters that readers must show (/#token=..., or as a bearer
    token); set it by FEDNODE_PAGE__TOKEN. HTTP shows the token to the network, so put a proxy with
    TLS in front of the page. null: only commands need a token, which the node draws. Commands need
    the node's own token in either case."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < 16:
            raise ValueError("page.token is too short; give at least 16 characters.")
