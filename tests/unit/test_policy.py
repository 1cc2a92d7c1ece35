"""What authors of policies import is fednode's own, and needs neither torch nor grpc."""

from __future__ import annotations

import subprocess
import sys

from fednode import policy
from fednode.core import events, settings, types
from fednode.core import policy as contract
from fednode.core.rounds import averaging, gossip, kind, method
from fednode.learn import prompt_module


def test_names_are_those_of_the_core_and_the_learner() -> None:
    homes = (events, settings, types, contract, averaging, gossip, kind, method, prompt_module)
    for name in policy.__all__:
        held = getattr(policy, name)
        owners = [home for home in homes if getattr(home, name, None) is held]
        assert owners or held.__module__.startswith(("fednode.core.", "fednode.l")), name


def test_every_event_and_effect_is_offered() -> None:
    ours = {"Started", "Commanded", "Told", "Misbehaved"}  # the kernel's own
    ours |= {"Answer", "Introduce", "Spend", "TurnAway"}
    every = {one.__name__ for union in (events.Event, events.Effect) for one in union.__args__}
    assert every - ours <= set(policy.__all__) | {"AdoptFailed"}


def test_everything_that_a_prompt_module_names_is_offered() -> None:
    home = prompt_module.__name__
    public = {
        name
        for name, held in vars(prompt_module).items()
        if getattr(held, "__module__", "") == home
    }
    assert public - {"to_params", "to_array"} <= set(policy.__all__)


def test_it_loads_neither_torch_nor_grpc() -> None:
    code = "import sys, fednode.policy; print({'torch', 'grpc'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
