"""Everything that a method outside this repository imports (docs/methods.md).

A method is a class: `Averaging` or `Method` for rounds of the whole mesh, or `GossipMethod` for
rounds that wait for no other node. Its attribute `prompts` is a `PromptModule`, such as `CoOp`:
what is tuned, its loss, and how it classifies. An entry point of the group `fednode.policies` names
the class. This module imports neither torch nor grpc.
"""

from fednode.core.merge.mean import mean, weights_of
from fednode.core.merge.numbers import roundtrip
from fednode.core.merge.robust import combine
from fednode.core.policy import NodeContext
from fednode.core.rounds.averaging import Averaging, AveragingConfig
from fednode.core.rounds.engine import Method
from fednode.core.rounds.gossip import Change, GossipConfig, GossipMethod, InboxMessage
from fednode.core.rounds.method import Contribution, MethodState, Round, Sent
from fednode.core.settings import STRICT, MergeSettings, RoundSettings, bounded, positive
from fednode.core.types import EMPTY, OWN, Array, Dtype, Job, Json, Report, Tensors
from fednode.lazy import F, Tensor, torch
from fednode.learn.coop import CONTEXT, COOP_TUNING, CoOp
from fednode.learn.init import context, generator, normal
from fednode.learn.prompt_module import Batch, JobInputs, Params, PerImageArray, PromptModule
from fednode.learn.settings import TuningSettings

__all__ = [
    "CONTEXT",
    "COOP_TUNING",
    "EMPTY",
    "OWN",
    "STRICT",
    "Array",
    "Averaging",
    "AveragingConfig",
    "Batch",
    "Change",
    "CoOp",
    "Contribution",
    "Dtype",
    "F",
    "GossipConfig",
    "GossipMethod",
    "InboxMessage",
    "Job",
    "JobInputs",
    "Json",
    "MergeSettings",
    "Method",
    "MethodState",
    "NodeContext",
    "Params",
    "PerImageArray",
    "PromptModule",
    "Report",
    "Round",
    "RoundSettings",
    "Sent",
    "Tensor",
    "Tensors",
    "TuningSettings",
    "bounded",
    "combine",
    "context",
    "generator",
    "mean",
    "normal",
    "positive",
    "roundtrip",
    "torch",
    "weights_of",
]
