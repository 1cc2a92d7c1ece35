"""Wrong imports, planted one at a time: the table of docs/architecture.md refuses each of them."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.sleeps import sleeps
from tests.tidy.table import faults, misplaced, part_of
from tests.tidy.tree import circles, imports

WRONG = [
    ("core.kernel", "import time"),
    ("core.kernel", "from fednode.core.rounds.engine import Rounds"),
    ("core.kernel", "from fednode.data.base import Split"),
    ("core.kernel", "from fednode.transports.base import Transport"),
    ("core.kernel", "from fednode.learn.settings import TuningSettings"),
    ("core.kernel", "import fednode"),
    ("core.members.swim", "from fednode.core.rounds.engine import Rounds"),
    ("core.members.swim", "from ..rounds import engine"),
    ("core.merge.mean", "from fednode.core.kernel import Kernel"),
    ("core.merge.mean", "from ..kernel import Kernel"),
    ("core.rounds.engine", "from fednode.core.kernel import Kernel"),
    ("core.types", "from fednode.core.events import Event"),
    ("core.types", "if TYPE_CHECKING:\n    from fednode.wire.codec import encode"),
    ("core.view", "from ..wire import codec"),
    ("policies.zerodfl.rows", "import time"),
    ("policies.zerodfl.rows", "import os"),
    ("policies.zerodfl.rows", "from secrets import token_bytes"),
    ("policies.zerodfl.rows", "from fednode.policies.plan.exchange import Plan"),
    ("policies.zerodfl.rows", "from ..plan import aggregator"),
    ("policies.zerodfl.rows", "from .exchange import ZeroDFL"),
    ("policies.zerodfl.pool", "from fednode.runtime.driver import Driver"),
    ("policies.feddpt.slots", "import socket, threading"),
    ("policies.feddpt.slots", "from fednode.learn.initial import context"),
    ("policies.feddpt.config", "from fednode_bootstrap.mesh import Mesh"),
    ("policies.feddpt.config", "import pathlib"),
    ("policies.feddpt.exchange", "from fednode.policies.feddpt.objective import Objective"),
    ("policies.feddpt.exchange", "from . import objective"),
    ("policies.feddpt.exchange", "import torch"),
    ("policies.feddpt.exchange", "from fednode.policies.plan.config import PlanConfig"),
    ("policies.feddpt.objective", "from fednode.policies.plan.objective import Objective"),
    ("policies.domains", "from fednode.policies.feddpt.config import FedDptConfig"),
    ("settings.faults", "from fednode.core.kernel import Kernel"),
    ("settings.faults", "from fednode.runtime import driver"),
    ("settings.read", "from fednode.app.plan import make"),
    ("settings.read", "from fednode.observe.status import NodeService"),
    ("units", "from fednode.core.types import Tensors"),
    ("units", "import os"),
    ("errors", "from fednode.core.types import Tensors"),
    ("shipped", "from fednode.settings.read import load_settings"),
    ("cli", "from fednode.commands.start import start"),
    ("cli", "import torch"),
    ("wire.codec", "import asyncio"),
    ("wire.codec", "import socket"),
    ("wire.codec", "from fednode.transports.grpc import GrpcTransport"),
    ("wire.codec", "from ..transports import grpc"),
    ("transports.framing", "from fednode.wire.codec import decode"),
    ("storage.store", "import grpc"),
    ("storage.store", "from fednode.identity.keys import Key"),
    ("identity.keys", "from fednode.identity.trust import Trust"),
    ("data.base", "from fednode.data.load import load"),
    ("clip.text", "from fednode.learn.learner import Learner"),
    ("learn.settings", "from fednode.learn.torch_learner import TorchLearner"),
    ("learn.learner", "import torch"),
    ("learn.torch_learner", "from fednode.policies.plan.objective import Objective"),
    ("sim.world", "from fednode.lab.simulate.checkers import Checkers"),
    ("sim.world", "import torch"),
    ("testing.player", "from fednode.lab.simulate import scenario"),
    ("runtime.driver", "from fednode.app.plan import make"),
    ("observe.web", "from fednode.commands import status"),
    ("terminal.show", "from fednode.commands.status import status"),
    ("app.plan", "from fednode.commands.check import check"),
    ("app.plan", "from fednode.lab.experiment import run"),
    ("commands.start", "def late():\n    from fednode.lab.experiment import run"),
    ("commands.start", "from fednode_bootstrap import mesh"),
    ("api", "from fednode.runtime.driver import Driver"),
    ("policy", "from fednode.learn.objective import Objective"),
    ("lab.simulate.scenario", "from fednode.lab.experiment.run import run"),
    ("lab.experiment.run", "from fednode.commands.start import start"),
    ("lab.demo.demo", "from fednode.runtime.driver import Driver"),
    ("lab.new_folder.module", "from fednode.commands.start import start"),
    ("new_folder.module", "from fednode.core.types import Tensors"),
    ("fednode_bootstrap.mesh", "from fednode.lab.demo import demo"),
    ("fednode_bootstrap.mesh", "from fednode.runtime.driver import Driver"),
    ("learn.cache", "import pickle"),
]


@pytest.mark.parametrize(("module", "line"), WRONG)
def test_a_wrong_import_is_refused(module: str, line: str) -> None:
    module = module if module.startswith("fednode_bootstrap") else f"fednode.{module}"
    wanted = imports(ast.parse(line), module)
    assert faults(module, wanted) or misplaced(module, wanted)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core.kernel", "from fednode.core import events as ev"),
        ("core.kernel", "from . import events"),
        ("core.rounds.engine", "from ..merge.mean import mean"),
        ("policies.feddpt.exchange", "from .slots import Slots"),
        ("policies.feddpt.objective", "from fednode.policies.feddpt import exchange"),
        ("wire.codec", "from fednode.wire.gen import exchange_pb2"),
        ("learn.torch_learner", "import torch.nn.functional"),
    ],
)
def test_a_right_import_is_not(module: str, line: str) -> None:
    wanted = imports(ast.parse(line), f"fednode.{module}")
    assert not faults(f"fednode.{module}", wanted)
    assert not misplaced(f"fednode.{module}", wanted)


def test_a_module_follows_its_most_precise_row() -> None:
    assert part_of("fednode.core.types") == "fednode.core.types"
    assert part_of("fednode.core.gate") == "fednode.core"
    assert part_of("fednode.policies.domains") == "fednode.policies.domains"
    assert part_of("fednode.policies.plan.aggregator") == "fednode.policies.*"
    assert part_of("fednode.policies.trip.routing") == "fednode.policies.trip.routing"
    assert part_of("fednode") == "fednode.__init__"
    assert part_of("fednode.elsewhere") is None


def test_a_circle_is_found_whatever_its_length() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}}) == [("a", "b"), ("c", "d")]


def test_a_package_resolves_its_relative_imports_from_itself() -> None:
    tree = ast.parse("from .kernel import Kernel")
    assert imports(tree, "fednode.core", package=True) == {"fednode.core.kernel.Kernel"}
    assert imports(tree, "fednode.core.gate") == {"fednode.core.kernel.Kernel"}


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.sleep(0.1)",
        "import time as clock\nclock.sleep(1)",
        "from time import sleep\nsleep(0.1)",
        "from asyncio import sleep as pause\nasync def f():\n    await pause(0.1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)",
        "import threading\nthreading.Event().wait(0.2)",
        "from threading import Event\nnever = Event()\nnever.wait(timeout=0.2)",
    ],
)
def test_a_sleep_is_found_whatever_it_is_called(code: str) -> None:
    assert sleeps(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
        "import threading\nready = threading.Event()\nassert ready.wait(20)",
        "import threading\ngate = threading.Barrier(2)\ngate.wait(30)",
        "def sleep(x):\n    pass\nsleep(3)",
    ],
)
def test_what_lets_others_run_or_waits_for_somebody_is_no_sleep(code: str) -> None:
    assert not sleeps(ast.parse(code))
