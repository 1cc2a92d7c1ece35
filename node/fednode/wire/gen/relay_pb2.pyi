from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromNode(_message.Message):
    __slots__ = ("wait", "dial", "take", "decline", "pong", "revocation", "admits")
    WAIT_FIELD_NUMBER: _ClassVar[int]
    DIAL_FIELD_NUMBER: _ClassVar[int]
    TAKE_FIELD_NUMBER: _ClassVar[int]
    DECLINE_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    REVOCATION_FIELD_NUMBER: _ClassVar[int]
    ADMITS_FIELD_NUMBER: _ClassVar[int]
    wait: Wait
    dial: Dial
    take: Take
    decline: Decline
    pong: Pong
    revocation: Revocation
    admits: Admits
    def __init__(self, wait: _Optional[_Union[Wait, _Mapping]] = ..., dial: _Optional[_Union[Dial, _Mapping]] = ..., take: _Optional[_Union[Take, _Mapping]] = ..., decline: _Optional[_Union[Decline, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., revocation: _Optional[_Union[Revocation, _Mapping]] = ..., admits: _Optional[_Union[Admits, _Mapping]] = ...) -> None: ...

class FromRelay(_message.Message):
    __slots__ = ("reply", "call", "ping", "drain")
    REPLY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    reply: Reply
    call: Call
    ping: Ping
    drain: Drain
    def __init__(self, reply: _Optional[_Union[Reply, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Wait(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Dial(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class Take(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    def __init__(self, ticket: _Optional[bytes] = ...) -> None: ...

class Decline(_message.Message):
    __slots__ = ("ticket", "why")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    why: str
    def __init__(self, ticket: _Optional[bytes] = ..., why: _Optional[str] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Revocation(_message.Message):
    __slots__ = ("proof",)
    PROOF_FIELD_NUMBER: _ClassVar[int]
    proof: bytes
    def __init__(self, proof: _Optional[bytes] = ...) -> None: ...

class Admits(_message.Message):
    __slots__ = ("now",)
    NOW_FIELD_NUMBER: _ClassVar[int]
    now: bool
    def __init__(self, now: _Optional[bool] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("code", "why")
    CODE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    code: str
    why: str
    def __init__(self, code: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("ticket", "caller", "source")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    caller: str
    source: str
    def __init__(self, ticket: _Optional[bytes] = ..., caller: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("revocations", "anchors")
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_FIELD_NUMBER: _ClassVar[int]
    revocations: _containers.RepeatedScalarFieldContainer[bytes]
    anchors: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, revocations: _Optional[_Iterable[bytes]] = ..., anchors: _Optional[_Iterable[bytes]] = ...) -> None: ...

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
