"""A node tells the members of its mesh less about itself than its operator sees.

Notes on images and errors of a site may name files, folders and patients, and may quote the texts
of tags. They are for the operator only; members get their number. A visitor of the page who shows
no token sees what members see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fednode.core.events import Level, Record
from fednode.observe.events import Logged
from fednode.wire.gen import status_pb2

TOLD: Final = ("peer.", "round.", "start.", "life.", "rows.", "merge.")
"""How the kinds of the records begin that members see. The code of the mesh writes their texts from
names of members, counts and rounds; no text of a file, an image or an exception is in them."""
TOLD_WHOLE: Final = frozenset(
    {
        *("message.refused", "command", "identity.revoked", "watch.missed"),
        *("state.agrees", "state.differs", "state.older"),
    }
)
"""Further kinds of records that members see."""
DETAILS: Final[Level] = "debug"
"""The level of records that no member sees, whatever their kind."""


def told(record: Record | status_pb2.Event) -> bool:
    """Tell whether members see a record."""
    ours = record.kind.startswith(TOLD) or record.kind in TOLD_WHOLE
    return record.level != DETAILS and ours


def for_members(
    reply: status_pb2.StatusReply,
    private: int,
    tells_classes: bool,
    seen: tuple[Sequence[str], int] | None = None,
) -> status_pb2.StatusReply:
    """Return a status without what is for the operator only.

    private: the number of notes and warnings that the reply leaves out, because only the operator
    sees them. tells_classes: data.tell_classes. seen: the class
    names and the number of images that members may see; None for those of the reply.
    """
    shown = status_pb2.StatusReply()
    shown.CopyFrom(reply)
    del shown.events[:]
    del shown.relays[:]
    shown.events.extend(event for event in reply.events if told(event))
    hidden = private + len(reply.events) - len(shown.events)
    if hidden:
        shown.notes.append(f"its operator sees {hidden} more notes or events about its own machine")
    if seen is not None:
        del shown.classes[:]
        shown.classes.extend(seen[0])
        shown.samples = seen[1]
    if not tells_classes:
        del shown.classes[:]
    return shown


def event_of(logged: Logged) -> status_pb2.Event:
    """Return a record in the form in which it is sent."""
    record = logged.record
    fields = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in record.fields.items()
    }
    return status_pb2.Event(
        time=logged.time,
        kind=record.kind,
        text=record.text,
        level=record.level,
        number=logged.number,
        fields=fields,
    )
