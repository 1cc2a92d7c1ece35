"""The settings of policy gda, and the rounds that it runs by default."""

from __future__ import annotations

from fednode.policies.gda.config import GDAConfig
from fednode.settings.read import Source, settings_of


def test_a_node_sends_means_and_runs_without_an_end() -> None:
    found = settings_of(Source("test", {"policy": {"name": "gda"}}))
    assert found.policy.config == GDAConfig("means", "personal", few_images=False)
    assert (found.rounds.max, found.rounds.min_interval_s) == (0, 60.0)
    ours = settings_of(Source("test", {"policy": {"name": "gda"}, "rounds": {"max": 3}}))
    assert (ours.rounds.max, ours.rounds.min_interval_s) == (3, 60.0)
    assert settings_of(Source("test", {})).rounds.max == 100


def test_sums_of_few_images_are_for_experiments() -> None:
    assert not GDAConfig(share="sums").experiments_only
    assert "remove it" in GDAConfig(share="sums", few_images=True).experiments_only
