"""Everything that a policy outside this repository imports (docs/policies.md, docs/objectives.md).

A policy is a `Method` (`Averaging` is one), which runs in mesh-wide rounds; a `GossipMethod`, which
runs in rounds of each node; or a class that follows `Policy` and `PolicyKind` itself. Its attribute
`prompts` says what is tuned, such as `CoOp`. An entry point of the group `fednode.policies` names
the class. This module imports neither torch nor grpc.
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
from fednode.core.rounds.gossip import GossipConfig, GossipMethod, InboxMessage
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.rounds.method import OWN, Contribution, Method, MethodState, Round, Sent
from fednode.core.rounds.trial import Change
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
from fednode.lazy import lazy
from fednode.learn.coop import CoOp
from fednode.learn.initial import context, generator
from fednode.learn.prompt_module import (
    Batch,
    Classifier,
    FitResult,
    JobInputs,
    Params,
    PerImageArray,
    PromptModule,
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
    "Batch",
    "CancelTimer",
    "Change",
    "Classifier",
    "CoOp",
    "Contribution",
    "Delivered",
    "Dtype",
    "Effect",
    "Event",
    "FitResult",
    "GossipConfig",
    "GossipMethod",
    "InboxMessage",
    "Job",
    "JobInputs",
    "Json",
    "MergeSettings",
    "Message",
    "Method",
    "MethodPolicy",
    "MethodState",
    "NodeContext",
    "Params",
    "PeerDown",
    "PeerUp",
    "PerImageArray",
    "Policy",
    "PolicyKind",
    "PolicyState",
    "PromptModule",
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
    "context",
    "generator",
    "lazy",
    "mean",
    "roundtrip",
    "weights_of",
]
