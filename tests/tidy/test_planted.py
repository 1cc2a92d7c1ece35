"""Wrong imports, planted one at a time: the table of docs/architecture.md refuses each of them."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.table import faults, misplaced, part_of
from tests.tidy.tree import circles, imports

WRONG = [
    ("core.kernel", "import time"),  # impure
    ("core.kernel", "from fednode.transports.base import Transport"),
    ("core.merge.mean", "from ..kernel import Kernel"),  # relative
    ("core.types", "if TYPE_CHECKING:\n    from fednode.wire.codec import encode"),
    ("policies.zerodfl", "from fednode.policies.plan import Plan"),  # another policy
    ("policies.zerodfl", "import time"),
    ("policies.gda", "from fednode.policies.local import Local"),
    ("commands.start", "def late():\n    from fednode.lab.experiment import run"),
    ("learn.cache", "import pickle"),  # a package without a place
    ("new_folder.module", "from fednode.core.types import Tensors"),  # no row
    ("fednode_bootstrap.mesh", "from fednode.runtime.driver import Driver"),
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
        ("policies.local", "from fednode.policies.gda import GaussianModule"),
        ("wire.codec", "from fednode.wire.gen import exchange_pb2"),
        ("learn.torch_learner", "import torch.nn.functional"),
        ("policies.zerodfl", "if TYPE_CHECKING:\n    import torch"),
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
    assert part_of("fednode.policies.plan") == "fednode.policies.*"
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
