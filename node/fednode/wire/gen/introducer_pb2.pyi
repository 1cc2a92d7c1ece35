from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnrolRequest(_message.Message):
    __slots__ = ("mesh", "name", "address", "token")
    MESH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    mesh: str
    name: str
    address: str
    token: str
    def __init__(self, mesh: _Optional[str] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class JudgeReply(_message.Message):
    __slots__ = ("sponsor", "settings", "members", "model", "clock")
    SPONSOR_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    sponsor: bytes
    settings: bytes
    members: _containers.RepeatedScalarFieldContainer[str]
    model: str
    clock: float
    def __init__(self, sponsor: _Optional[bytes] = ..., settings: _Optional[bytes] = ..., members: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., clock: _Optional[float] = ...) -> None: ...

class EnrolReply(_message.Message):
    __slots__ = ("lease", "contacts", "revocations")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CONTACTS_FIELD_NUMBER: _ClassVar[int]
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    lease: bytes
    contacts: _containers.RepeatedCompositeFieldContainer[Contact]
    revocations: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, lease: _Optional[bytes] = ..., contacts: _Optional[_Iterable[_Union[Contact, _Mapping]]] = ..., revocations: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Contact(_message.Message):
    __slots__ = ("name", "address", "id", "lease")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    id: str
    lease: bytes
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., id: _Optional[str] = ..., lease: _Optional[bytes] = ...) -> None: ...
