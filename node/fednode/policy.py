"""Everything that a policy outside this repository imports (docs/policies.md).

A policy is either a `Method` (most are: `Averaging` is one), which `MethodPolicy` runs in mesh-wide
rounds, or a class that follows `Policy` and `PolicyKind` itself. An entry point of the group
`fednode.policies` names the class. This module needs neither torch nor grpc.
"""

from fednode.core.events import (
    Adopt,
    Adopted,
    CancelTimer,
    Delivered,
    Effect,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Record,
    Regained,
    RoundDue,
    Send,
    SetTimer,
    Stopping,
    TimerFired,
    Tune,
    Tuned,
    TuneFailed,
    Undelivered,
)
from fednode.core.merge.mean import mean, weights_of
from fednode.core.merge.numbers import roundtrip
from fednode.core.merge.robust import combine
from fednode.core.policy import (
    DEADLINE,
    RESEND,
    RESEND_S,
    Activity,
    NodeContext,
    Policy,
    PolicyKind,
)
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import OWN, Contribution, Method, MethodState, Round, Sent
from fednode.core.settings import STRICT, Barrier, MergeSettings, RoundSettings, bounded
from fednode.core.types import (
    EMPTY,
    MEASURE,
    Array,
    Dtype,
    Job,
    Json,
    Message,
    PolicyState,
    Report,
    Snapshot,
    Tensors,
)

__all__ = [
    "DEADLINE",
    "EMPTY",
    "MEASURE",
    "OWN",
    "RESEND",
    "RESEND_S",
    "STRICT",
    "Activity",
    "Adopt",
    "Adopted",
    "Array",
    "Averaging",
    "AveragingConfig",
    "Barrier",
    "CancelTimer",
    "Contribution",
    "Delivered",
    "Dtype",
    "Effect",
    "Event",
    "Job",
    "Json",
    "MergeSettings",
    "Message",
    "Method",
    "MethodPolicy",
    "MethodState",
    "NodeContext",
    "PeerDown",
    "PeerUp",
    "Policy",
    "PolicyKind",
    "PolicyState",
    "Received",
    "Record",
    "Regained",
    "Report",
    "Round",
    "RoundDue",
    "RoundSettings",
    "Send",
    "Sent",
    "SetTimer",
    "Snapshot",
    "Stopping",
    "Tensors",
    "TimerFired",
    "Tune",
    "TuneFailed",
    "Tuned",
    "Undelivered",
    "bounded",
    "combine",
    "mean",
    "roundtrip",
    "weights_of",
]
