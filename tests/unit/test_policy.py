"""What authors of methods import is what fednode's own methods use, and needs no torch."""

from __future__ import annotations

import subprocess
import sys

from fednode import policy
from fednode.core.rounds import averaging, gossip, method
from fednode.learn import coop, prompt_module


def test_the_classes_are_those_of_the_built_in_methods() -> None:
    for home in (averaging, coop, gossip, method, prompt_module):
        for name in {*policy.__all__} & {*vars(home)}:
            assert getattr(policy, name) is vars(home)[name]
    assert {"Averaging", "CoOp", "GossipMethod", "Method", "PromptModule"} <= set(policy.__all__)
    assert all(hasattr(policy, name) for name in policy.__all__)


def test_it_loads_neither_torch_nor_grpc() -> None:
    code = "import sys, fednode.policy; print({'torch', 'grpc'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
