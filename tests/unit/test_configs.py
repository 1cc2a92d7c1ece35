"""The files in configs/ say what the code says: every key, its default, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from node.clip.settings import ModelSettings
from node.core.settings import GuardSettings, MembershipSettings, RoundSettings
from node.data.base import DataSettings
from node.learn.settings import TuningSettings

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SECTIONS: dict[str, Any] = {
    "model": ModelSettings(),
    "data": DataSettings(),
    "tuning": TuningSettings(),
    "rounds": RoundSettings(),
    "guard": GuardSettings(),
    "membership": MembershipSettings(),
}
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
NODE_FILES = ["demo/node.yaml", *(f"pacs/{domain}.yaml" for domain in DOMAINS)]
PEER_FILES = ["peers.yaml", "pacs/peers.yaml"]


def read(name: str) -> dict[str, Any]:
    found = yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("section", SECTIONS)
def test_section_lists_exactly_all_keys_with_their_defaults(section: str) -> None:
    assert read("node.yaml")[section] == asdict(SECTIONS[section])


def test_policy_lists_exactly_all_keys_with_their_defaults() -> None:
    exchange = pytest.importorskip("node.policies.zerodfl.exchange")
    policy = read("node.yaml")["policy"]
    assert policy.pop("name") == "zerodfl"
    assert policy == asdict(exchange.ZeroDFLConfig())


def test_every_key_is_explained() -> None:
    """A comment stands above each key, or above the first of a few that it explains together."""
    lines = (CONFIGS / "node.yaml").read_text(encoding="utf-8").splitlines()
    together = {"count", "weight_decay", "timeout_s"}
    for above, line in pairwise(lines):
        key = re.match(r" *([a-z_]+): ?(.*)", line)
        if key and key[2] and key[1] not in together:
            assert above.lstrip().startswith("# "), line


@pytest.mark.parametrize("name", NODE_FILES)
def test_files_for_a_purpose_use_known_keys(name: str) -> None:
    assert set(leaves(read(name))) <= set(leaves(read("node.yaml")))


@pytest.mark.parametrize("name", PEER_FILES)
def test_peers_are_distinct_and_on_loopback(name: str) -> None:
    mesh = read(name)
    assert set(mesh) == {"mesh", "insecure", "peers"}
    assert mesh["insecure"] is True
    names = [peer["name"] for peer in mesh["peers"]]
    addresses = [peer["address"] for peer in mesh["peers"]]
    assert len(set(names)) == len(set(addresses)) == len(mesh["peers"]) >= 2
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", one) for one in names)
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", one) for one in addresses)


def test_every_domain_of_pacs_is_a_peer_and_all_agree() -> None:
    nodes = {domain: read(f"pacs/{domain}.yaml") for domain in DOMAINS}
    names = [peer["name"] for peer in read("pacs/peers.yaml")["peers"]]
    assert [node["name"] for node in nodes.values()] == names
    for domain, node in nodes.items():
        assert node["data"].pop("path") == f"./PACS/{domain}"
        assert node.pop("state_dir").endswith(f"/{domain}")
        del node["name"]
    assert all(node == nodes["photo"] for node in nodes.values())


def test_the_guide_names_every_file_and_port() -> None:
    guide = (CONFIGS.parent / "docs" / "by-hand.md").read_text(encoding="utf-8")
    assert all(f"configs/pacs/{domain}.yaml" in guide for domain in DOMAINS)
    ports = {peer["address"] for peer in read("pacs/peers.yaml")["peers"]}
    assert set(re.findall(r"127\.0\.0\.1:\d+", guide)) <= ports
