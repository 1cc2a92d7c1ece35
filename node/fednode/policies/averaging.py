"""The policies that are federated averaging and nothing else: data, read by the registry.

    policy    what all nodes share                        what a node keeps
    promptfl  context vectors                             -
    fedclip   an attention adapter behind the images      -
    fedmaple  coupled prompts of both towers              -
    fedotp    a global prompt                             a local prompt
    fedpgp    a global prompt                             its low-rank change
    fedtpg    a network that makes prompts from names     -

Each folder holds a policy's settings (config.py) and what is tuned (objective.py). What a node
keeps travels in its learner's carry (core/rounds/averaging.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fednode.core.rounds.averaging import Averaging
from fednode.core.rounds.kind import MethodPolicy
from fednode.core.types import Json
from fednode.policies.fedclip.config import FedCLIPConfig
from fednode.policies.fedmaple.config import FedMaPLeConfig
from fednode.policies.fedotp.config import FedOTPConfig
from fednode.policies.fedpgp.config import FedPGPConfig
from fednode.policies.fedtpg.config import FedTPGConfig
from fednode.policies.promptfl.config import PromptFLConfig

_COOP: Final[Mapping[str, Json]] = {
    "context_length": 16,
    "lr": 0.001,
    "momentum": 0.9,
    "weight_decay": 0.0005,
    "schedule": "constant",
}
"""The tuning that PromptFL, FedOTP and FedPGP have in common, after CoOp's released code."""

PROMPTFL: Final = MethodPolicy(
    Averaging, "promptfl", PromptFLConfig, {**_COOP, "batch_size": 32, "epochs": 5}
)
FEDCLIP: Final = MethodPolicy(
    Averaging,
    "fedclip",
    FedCLIPConfig,
    {
        "lr": 5e-05,
        "optimizer": "adam",
        "betas": [0.9, 0.98],
        "eps": 1e-06,
        "weight_decay": 0.2,
        "batch_size": 32,
        "schedule": "constant",
        "template": "a picture of a {}.",
    },
)
FEDMAPLE: Final = MethodPolicy(
    Averaging,
    "fedmaple",
    FedMaPLeConfig,
    {
        "context_length": 2,
        "init_words": "a photo",
        "lr": 0.0035,
        "batch_size": 4,
        "epochs": 5,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "schedule": "constant",
    },
)
FEDOTP: Final = MethodPolicy(
    Averaging, "fedotp", FedOTPConfig, {**_COOP, "batch_size": 16, "epochs": 5}
)
FEDPGP: Final = MethodPolicy(
    Averaging, "fedpgp", FedPGPConfig, {**_COOP, "batch_size": 16, "epochs": 2}
)
FEDTPG: Final = MethodPolicy(Averaging, "fedtpg", FedTPGConfig)

POLICIES: Final[Mapping[str, MethodPolicy]] = {
    kind.name: kind for kind in (PROMPTFL, FEDCLIP, FEDMAPLE, FEDOTP, FEDPGP, FEDTPG)
}
"""Name -> policy."""
