from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WaitRequest(_message.Message):
    __slots__ = ("revocations", "invitations")
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    INVITATIONS_FIELD_NUMBER: _ClassVar[int]
    revocations: _containers.RepeatedScalarFieldContainer[bytes]
    invitations: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, revocations: _Optional[_Iterable[bytes]] = ..., invitations: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Ticket(_message.Message):
    __slots__ = ("ticket", "caller")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    caller: str
    def __init__(self, ticket: _Optional[bytes] = ..., caller: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...
