"""The files in configs/ say what the code says: every key, its default, and no others."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.clip.settings import ModelSettings
from fednode.core.settings import GuardSettings, MembershipSettings, RoundSettings
from fednode.data.base import DataSettings
from fednode.learn.settings import CacheSettings, TuningSettings
from fednode.policies.zerodfl import ZeroDFLConfig
from fednode.settings.peers import load_peers
from fednode.settings.read import Settings, Source, chosen_of, load_settings, settings_of

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SECTIONS: dict[str, Any] = {
    "model": ModelSettings(),
    "data": DataSettings(),
    "tuning": TuningSettings(),
    "cache": CacheSettings(),
    "rounds": RoundSettings(),
    "guard": GuardSettings(),
    "membership": MembershipSettings(),
}
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NODE_FILES = ["demo/node.yaml", *(f"pacs/{domain}.yaml" for domain in DOMAINS)]
PEER_FILES = ["peers.yaml", "pacs/peers.yaml"]


def uncommented(name: str) -> str:
    """Return a file in which every key that is a comment has its value."""
    text = (CONFIGS / name).read_text(encoding="utf-8")
    return re.sub(r"(?m)^( *)#(?=[a-z_]+: )", r"\1", text)


def read(name: str) -> dict[str, Any]:
    found = yaml.safe_load(uncommented(name))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_section_lists_exactly_all_keys_with_their_defaults(section: str) -> None:
    assert read("node.yaml")[section] == json.loads(json.dumps(asdict(SECTIONS[section])))


def test_policy_lists_exactly_all_keys_with_their_defaults() -> None:
    policy = read("node.yaml")["policy"]
    assert policy.pop("name") == "zerodfl"
    assert policy == asdict(ZeroDFLConfig())


def test_the_file_holds_every_setting_there_is() -> None:
    assert set(read("node.yaml")) == {one.name for one in fields(Settings)}
    assert load_settings(CONFIGS / "node.yaml", {}) == Settings()
    assert settings_of(Source("node.yaml", read("node.yaml"))) == replace(
        Settings(), policy=chosen_of({"name": "zerodfl", **asdict(ZeroDFLConfig())})
    )


def test_every_key_is_explained() -> None:
    """A comment stands above each key, also above the keys that are sections."""
    lines = uncommented("node.yaml").splitlines()
    for above, line in pairwise(lines):
        if not line.lstrip().startswith("#") and line:
            assert above.lstrip().startswith("# "), line


@pytest.mark.parametrize("name", NODE_FILES)
def test_files_for_a_purpose_are_valid(name: str) -> None:
    assert isinstance(load_settings(CONFIGS / name, {}).policy.config, ZeroDFLConfig)


@pytest.mark.parametrize("name", PEER_FILES)
def test_peers_are_distinct_and_on_loopback(name: str) -> None:
    assert len(load_peers(CONFIGS / name).peers) >= 2


def test_every_domain_of_pacs_is_a_peer_and_all_agree() -> None:
    nodes = {domain: read(f"pacs/{domain}.yaml") for domain in DOMAINS}
    names = [peer["name"] for peer in read("pacs/peers.yaml")["peers"]]
    assert [node["name"] for node in nodes.values()] == names
    for domain, node in nodes.items():
        assert node["data"].pop("path") == f"./PACS/{domain}"
        assert node["data"].pop("domain") == domain
        assert node.pop("state_dir").endswith(f"/{domain}")
        del node["name"]
    assert all(node == nodes["photo"] for node in nodes.values())


def test_the_guide_names_every_file_and_port() -> None:
    guide = (CONFIGS.parent / "docs" / "demo.md").read_text(encoding="utf-8")
    assert all(f"configs/pacs/{domain}.yaml" in guide for domain in DOMAINS)
    ports = {peer["address"] for peer in read("pacs/peers.yaml")["peers"]}
    assert set(re.findall(r"127\.0\.0\.1:\d+", guide)) <= ports
