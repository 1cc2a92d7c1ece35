from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_STATE_UNSPECIFIED: _ClassVar[MemberState]
    MEMBER_STATE_ALIVE: _ClassVar[MemberState]
    MEMBER_STATE_SUSPECT: _ClassVar[MemberState]
    MEMBER_STATE_DEAD: _ClassVar[MemberState]
    MEMBER_STATE_LEFT: _ClassVar[MemberState]
    MEMBER_STATE_REVOKED: _ClassVar[MemberState]

class AckCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_CODE_UNSPECIFIED: _ClassVar[AckCode]
    ACK_CODE_OK: _ClassVar[AckCode]
    ACK_CODE_DUPLICATE: _ClassVar[AckCode]
    ACK_CODE_STALE: _ClassVar[AckCode]
    ACK_CODE_REFUSED: _ClassVar[AckCode]
    ACK_CODE_INVALID: _ClassVar[AckCode]
    ACK_CODE_BUSY: _ClassVar[AckCode]
    ACK_CODE_SILENT: _ClassVar[AckCode]
    ACK_CODE_INACTIVE: _ClassVar[AckCode]
MEMBER_STATE_UNSPECIFIED: MemberState
MEMBER_STATE_ALIVE: MemberState
MEMBER_STATE_SUSPECT: MemberState
MEMBER_STATE_DEAD: MemberState
MEMBER_STATE_LEFT: MemberState
MEMBER_STATE_REVOKED: MemberState
ACK_CODE_UNSPECIFIED: AckCode
ACK_CODE_OK: AckCode
ACK_CODE_DUPLICATE: AckCode
ACK_CODE_STALE: AckCode
ACK_CODE_REFUSED: AckCode
ACK_CODE_INVALID: AckCode
ACK_CODE_BUSY: AckCode
ACK_CODE_SILENT: AckCode
ACK_CODE_INACTIVE: AckCode

class Frame(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("version", "mesh", "fingerprint", "policy", "sender", "round", "phase", "contributors", "samples", "facts", "table", "members", "inactive", "boot", "classes", "block", "head_bytes", "checksum")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    HEAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    version: int
    mesh: str
    fingerprint: bytes
    policy: str
    sender: str
    round: int
    phase: str
    contributors: bytes
    samples: int
    facts: _containers.ScalarMap[str, str]
    table: bytes
    members: _containers.RepeatedCompositeFieldContainer[Member]
    inactive: bool
    boot: str
    classes: _containers.RepeatedScalarFieldContainer[str]
    block: bytes
    head_bytes: int
    checksum: bytes
    def __init__(self, version: _Optional[int] = ..., mesh: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., policy: _Optional[str] = ..., sender: _Optional[str] = ..., round: _Optional[int] = ..., phase: _Optional[str] = ..., contributors: _Optional[bytes] = ..., samples: _Optional[int] = ..., facts: _Optional[_Mapping[str, str]] = ..., table: _Optional[bytes] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., inactive: _Optional[bool] = ..., boot: _Optional[str] = ..., classes: _Optional[_Iterable[str]] = ..., block: _Optional[bytes] = ..., head_bytes: _Optional[int] = ..., checksum: _Optional[bytes] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "state", "incarnation", "address", "id", "proof")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: MemberState
    incarnation: int
    address: str
    id: str
    proof: bytes
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[MemberState, str]] = ..., incarnation: _Optional[int] = ..., address: _Optional[str] = ..., id: _Optional[str] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("code", "detail", "later")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    code: AckCode
    detail: str
    later: int
    def __init__(self, code: _Optional[_Union[AckCode, str]] = ..., detail: _Optional[str] = ..., later: _Optional[int] = ...) -> None: ...
