"""Whom a simulated node believes in a mesh of peers.yaml: each host reads its own file.

With keys it plays `Trust` (node/fednode/identity/trust.py) without leases: neither host connects
to one that its file does not list. Without keys it plays `Listed`: the receiver refuses those that
its file listed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fednode.core.events import Relisted
from fednode.core.types import Update
from fednode.sim.host import Host


@dataclass(slots=True)
class Files:
    """The peers.yaml of each host, as far as it names other nodes: their addresses.

    keys: whether hosts know each other by keys.
    """

    hosts: Mapping[str, Host]
    keys: bool = True
    _gone: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    """By host: its start, and the names that its file listed before, since that start."""

    def write(self, at: str, entries: Mapping[str, str]) -> Relisted | None:
        """Change a host's file; return what a running node is told, None if nothing changed.

        What the host believes changes at once, and its kernel only with the event.
        """
        host, after = self.hosts[at], {name: entries[name] for name in sorted(entries)}
        before, host.listed = host.listed, after
        host.build.lists(tuple(after))
        gone = tuple(name for name in before if name not in after)
        self._gone[at] = host.boot, (self._before(at) | {*gone}) - {*after}
        news = tuple(
            Update(name, "alive", 0, address, self.id_of(name))
            for name, address in after.items()
            if before.get(name) != address
        )
        return Relisted(news, gone) if news or gone else None

    def id_of(self, name: str) -> str:
        """Return the id of a node; "" without keys."""
        return f"key-{name}" if self.keys else ""

    def _before(self, at: str) -> frozenset[str]:
        """Return the names that a host's file listed before; a restart forgets them."""
        boot, names = self._gone.get(at, (0, frozenset[str]()))
        return names if boot == self.hosts[at].boot else frozenset()

    def lists(self, at: str, name: str) -> bool:
        """Tell whether a host's file lists a name; it lists the host itself."""
        return name == at or name in self.hosts[at].listed

    def connects(self, sender: str, to: str) -> bool:
        """Tell whether neither of two hosts ends a connection between them before a message."""
        return not self.keys or (self.lists(sender, to) and self.lists(to, sender))

    def refusal(self, sender: str, to: str) -> str:
        """Return why a host refuses what another sent to it; "" if it does not."""
        if self.keys and not self.lists(to, sender):
            return f"the key of {sender!r} belongs to nobody in this mesh"
        return f"{sender!r} is in peers.yaml no more" if sender in self._before(to) else ""

    def believed(self, at: str, sender: str, news: Iterable[Update]) -> tuple[Update, ...]:
        """Return the news of listed members, with addresses only from the members themselves."""
        return tuple(
            replace(
                update,
                address=update.address if update.name == sender else "",
                id=self.id_of(update.name),
                proof=b"",
            )
            for update in news
            if self.lists(at, update.name) and update.state != "revoked"
        )

    def named(self, name: str) -> bool:
        """Tell whether there is a host of a name."""
        return name in self.hosts
