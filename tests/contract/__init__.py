"""Suites that several classes must pass."""

import pytest

pytest.register_assert_rewrite("tests.contract.player", "tests.contract.policy_suite")
