from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("name", "node_id", "mesh", "version", "address", "policy", "fingerprint", "life", "round", "rounds_max", "phase", "step", "steps", "metrics", "uptime_s", "samples", "classes", "model", "backbone", "peers", "traffic", "refused", "events", "alone", "best_round", "best_validation", "notes", "pid", "page", "measured", "warnings", "round_s", "alone_by_wish", "compared", "working", "relays", "measured_round", "rounds_run", "rounds_merged", "clock", "together", "gain")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class MeasuredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_MAX_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    BEST_ROUND_FIELD_NUMBER: _ClassVar[int]
    BEST_VALIDATION_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    ROUND_S_FIELD_NUMBER: _ClassVar[int]
    ALONE_BY_WISH_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    WORKING_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_RUN_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_MERGED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    TOGETHER_FIELD_NUMBER: _ClassVar[int]
    GAIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    node_id: str
    mesh: str
    version: str
    address: str
    policy: str
    fingerprint: str
    life: str
    round: int
    rounds_max: int
    phase: str
    step: int
    steps: int
    metrics: _containers.ScalarMap[str, float]
    uptime_s: float
    samples: int
    classes: _containers.RepeatedScalarFieldContainer[str]
    model: str
    backbone: str
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    traffic: Traffic
    refused: _containers.ScalarMap[str, int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    alone: bool
    best_round: int
    best_validation: float
    notes: _containers.RepeatedScalarFieldContainer[str]
    pid: int
    page: str
    measured: _containers.ScalarMap[str, float]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    round_s: float
    alone_by_wish: bool
    compared: _containers.RepeatedScalarFieldContainer[str]
    working: str
    relays: _containers.RepeatedCompositeFieldContainer[Relay]
    measured_round: int
    rounds_run: int
    rounds_merged: int
    clock: float
    together: str
    gain: Gain
    def __init__(self, name: _Optional[str] = ..., node_id: _Optional[str] = ..., mesh: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., policy: _Optional[str] = ..., fingerprint: _Optional[str] = ..., life: _Optional[str] = ..., round: _Optional[int] = ..., rounds_max: _Optional[int] = ..., phase: _Optional[str] = ..., step: _Optional[int] = ..., steps: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., uptime_s: _Optional[float] = ..., samples: _Optional[int] = ..., classes: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., backbone: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., traffic: _Optional[_Union[Traffic, _Mapping]] = ..., refused: _Optional[_Mapping[str, int]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., alone: _Optional[bool] = ..., best_round: _Optional[int] = ..., best_validation: _Optional[float] = ..., notes: _Optional[_Iterable[str]] = ..., pid: _Optional[int] = ..., page: _Optional[str] = ..., measured: _Optional[_Mapping[str, float]] = ..., warnings: _Optional[_Iterable[str]] = ..., round_s: _Optional[float] = ..., alone_by_wish: _Optional[bool] = ..., compared: _Optional[_Iterable[str]] = ..., working: _Optional[str] = ..., relays: _Optional[_Iterable[_Union[Relay, _Mapping]]] = ..., measured_round: _Optional[int] = ..., rounds_run: _Optional[int] = ..., rounds_merged: _Optional[int] = ..., clock: _Optional[float] = ..., together: _Optional[str] = ..., gain: _Optional[_Union[Gain, _Mapping]] = ...) -> None: ...

class Gain(_message.Message):
    __slots__ = ("images", "difference", "squares")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    SQUARES_FIELD_NUMBER: _ClassVar[int]
    images: int
    difference: int
    squares: int
    def __init__(self, images: _Optional[int] = ..., difference: _Optional[int] = ..., squares: _Optional[int] = ...) -> None: ...

class Relay(_message.Message):
    __slots__ = ("address", "state", "why")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    address: str
    state: str
    why: str
    def __init__(self, address: _Optional[str] = ..., state: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("name", "address", "state", "round", "heard_s", "reason", "traffic", "unreached", "path", "path_why", "id", "certificates")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    HEARD_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PATH_WHY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    state: str
    round: int
    heard_s: float
    reason: str
    traffic: Traffic
    unreached: str
    path: str
    path_why: str
    id: str
    certificates: bytes
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., round: _Optional[int] = ..., heard_s: _Optional[float] = ..., reason: _Optional[str] = ..., traffic: _Optional[_Union[Traffic, _Mapping]] = ..., unreached: _Optional[str] = ..., path: _Optional[str] = ..., path_why: _Optional[str] = ..., id: _Optional[str] = ..., certificates: _Optional[bytes] = ...) -> None: ...

class Traffic(_message.Message):
    __slots__ = ("messages_in", "messages_out", "payload_in", "payload_out", "serialized_in", "serialized_out", "wire_in", "wire_out")
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_IN_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_OUT_FIELD_NUMBER: _ClassVar[int]
    SERIALIZED_IN_FIELD_NUMBER: _ClassVar[int]
    SERIALIZED_OUT_FIELD_NUMBER: _ClassVar[int]
    WIRE_IN_FIELD_NUMBER: _ClassVar[int]
    WIRE_OUT_FIELD_NUMBER: _ClassVar[int]
    messages_in: int
    messages_out: int
    payload_in: int
    payload_out: int
    serialized_in: int
    serialized_out: int
    wire_in: int
    wire_out: int
    def __init__(self, messages_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., payload_in: _Optional[int] = ..., payload_out: _Optional[int] = ..., serialized_in: _Optional[int] = ..., serialized_out: _Optional[int] = ..., wire_in: _Optional[int] = ..., wire_out: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("time", "kind", "text", "level", "number", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    time: float
    kind: str
    text: str
    level: str
    number: int
    fields: _containers.ScalarMap[str, str]
    def __init__(self, time: _Optional[float] = ..., kind: _Optional[str] = ..., text: _Optional[str] = ..., level: _Optional[str] = ..., number: _Optional[int] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("since", "level", "follow")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    since: int
    level: str
    follow: bool
    def __init__(self, since: _Optional[int] = ..., level: _Optional[str] = ..., follow: _Optional[bool] = ...) -> None: ...

class PeersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeersReply(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    def __init__(self, peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ...) -> None: ...

class SettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SettingsReply(_message.Message):
    __slots__ = ("name", "mesh", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    mesh: str
    settings: bytes
    def __init__(self, name: _Optional[str] = ..., mesh: _Optional[str] = ..., settings: _Optional[bytes] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("since", "limit")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    since: int
    limit: int
    def __init__(self, since: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("rounds",)
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    rounds: _containers.RepeatedCompositeFieldContainer[Round]
    def __init__(self, rounds: _Optional[_Iterable[_Union[Round, _Mapping]]] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("round", "metrics", "traffic", "digest")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ROUND_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    round: int
    metrics: _containers.ScalarMap[str, float]
    traffic: Traffic
    digest: str
    def __init__(self, round: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., traffic: _Optional[_Union[Traffic, _Mapping]] = ..., digest: _Optional[str] = ...) -> None: ...

class ControlRequest(_message.Message):
    __slots__ = ("command", "proof")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    command: str
    proof: bytes
    def __init__(self, command: _Optional[str] = ..., proof: _Optional[bytes] = ...) -> None: ...

class ControlReply(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
