from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AckCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACK_CODE_UNSPECIFIED: _ClassVar[AckCode]
    ACK_CODE_OK: _ClassVar[AckCode]
    ACK_CODE_STALE: _ClassVar[AckCode]
    ACK_CODE_REFUSED: _ClassVar[AckCode]
    ACK_CODE_INVALID: _ClassVar[AckCode]
    ACK_CODE_BUSY: _ClassVar[AckCode]
    ACK_CODE_SILENT: _ClassVar[AckCode]
    ACK_CODE_INACTIVE: _ClassVar[AckCode]
ACK_CODE_UNSPECIFIED: AckCode
ACK_CODE_OK: AckCode
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
    __slots__ = ("mesh", "fingerprint", "policy", "sender", "round", "phase", "base", "samples", "inactive", "boot", "metadata")
    MESH_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    mesh: str
    fingerprint: bytes
    policy: str
    sender: str
    round: int
    phase: str
    base: bytes
    samples: int
    inactive: bool
    boot: str
    metadata: bytes
    def __init__(self, mesh: _Optional[str] = ..., fingerprint: _Optional[bytes] = ..., policy: _Optional[str] = ..., sender: _Optional[str] = ..., round: _Optional[int] = ..., phase: _Optional[str] = ..., base: _Optional[bytes] = ..., samples: _Optional[int] = ..., inactive: _Optional[bool] = ..., boot: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("code", "detail", "later")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    LATER_FIELD_NUMBER: _ClassVar[int]
    code: AckCode
    detail: str
    later: int
    def __init__(self, code: _Optional[_Union[AckCode, str]] = ..., detail: _Optional[str] = ..., later: _Optional[int] = ...) -> None: ...
