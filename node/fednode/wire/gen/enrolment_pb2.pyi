from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("settings", "members", "model", "clock")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    settings: bytes
    members: _containers.RepeatedScalarFieldContainer[str]
    model: str
    clock: float
    def __init__(self, settings: _Optional[bytes] = ..., members: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., clock: _Optional[float] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CertificateReply(_message.Message):
    __slots__ = ("chain", "revocations")
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    chain: bytes
    revocations: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, chain: _Optional[bytes] = ..., revocations: _Optional[_Iterable[bytes]] = ...) -> None: ...
