"""Methods hold their loss beside their exchange, and importing them does not import torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fednode.lazy import lazy

ROOT = Path(__file__).resolve().parents[2]


def test_a_lazy_module_is_the_module() -> None:
    import math

    assert lazy("math").sqrt is math.sqrt
    assert lazy("os.path").join("a", "b")


def test_it_is_imported_at_its_first_use_alone() -> None:
    code = (
        "import sys\nfrom fednode.lazy import lazy\n"
        "module = lazy('colorsys')\nassert 'colorsys' not in sys.modules\n"
        "module.rgb_to_hsv(0, 0, 0)\nassert 'colorsys' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_methods_and_their_prompts_are_imported_without_torch() -> None:
    """A decorator, a base class or a constant of torch outside of functions would import it."""
    code = (
        "import sys\nfrom fednode import registry\n"
        "for name in registry.names():\n"
        "    kind = registry.policy(name)\n"
        "    getattr(getattr(kind, 'method', kind), 'prompts', None)\n"
        "heavy = {'torch', 'open_clip'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


WITHOUT_TORCH = "import sys\nsys.modules['torch'] = None\n"
"""Whatever imports torch fails."""


@pytest.mark.parametrize(
    "code",
    [
        "from tests.contract.test_policies import CASES, TestPolicies as T\n"
        "for one in CASES:\n"
        "    T().test_a_round_adopts_what_it_tuned_or_merged_and_measured(*one.values)\n"
        "    if not one.marks:\n"
        "        T().test_total_and_orderly_in_any_order_of_events(*one.values, 1)\n",
        pytest.param(
            "from fednode.cli import main\n"
            "main(['simulate', 'configs/sim/everything.yaml', '--seed', '180001'])\n",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["contract", "simulation"],
)
def test_no_exchange_uses_torch(code: str) -> None:
    """A merge on the kernel's thread would wait for the import, and its bits would depend on it."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
