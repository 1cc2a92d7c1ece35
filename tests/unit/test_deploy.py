"""compose.yaml, bootstrap/Dockerfile, configs/systemd and configs/watch fit the code.

Goal: what is shipped for running nodes elsewhere names commands, settings, ports, files and metrics
that exist. Method: read the files, put their environments through the settings loader, their words
through the command line's own parser, and their metric names beside what a node exposes. That they
run is shown on a real engine (docs/containers.md), which the default suite does not have.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fednode.observe.metrics import Metrics
from fednode.settings.read import load_settings
from fednode.wire.gen.status_pb2 import Peer, StatusReply
from tests.command_line import parsed

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "bootstrap" / "Dockerfile"
HEALTH = json.loads(re.findall(r"^    CMD (\[.*\])", DOCKERFILE.read_text(), re.M)[0])
"""The image's health check; tests/e2e/test_containers.py runs it."""
IMAGE_COMMAND = json.loads(re.findall(r"^CMD (\[.*\])", DOCKERFILE.read_text(), re.M)[-1])
PAGE_TOKEN = "page-token"
WATCH = ROOT / "configs" / "watch"


def settings_in(environment: Mapping[str, str], folder: Path) -> Any:
    """Return a node's settings with the secret of its environment put into a folder."""
    here = dict(environment)
    for key, value in environment.items():
        if key.endswith("_FILE"):
            assert Path(value).name == PAGE_TOKEN
            (folder / PAGE_TOKEN).write_text("a secret of 16 letters\n")
            here[key] = str(folder / PAGE_TOKEN)
    return load_settings(ROOT / "configs" / "demo" / "node.yaml", here)


# compose.yaml -------------------------------------------------------------------------------------

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"] == "fednode"}
NODES = {name: one for name, one in OURS.items() if name.startswith("node-")}


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_command_that_exists_with_as_few_rights_as_it_needs(name: str) -> None:
    service = OURS[name]
    if "entrypoint" not in service:
        parsed(service.get("command", IMAGE_COMMAND))
    assert service["read_only"] is service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_what_services_mount_is_there() -> None:
    for service in COMPOSE["services"].values():
        for line in service.get("volumes", ()):
            source = line.split(":")[0]
            known = source in COMPOSE["volumes"] or (ROOT / source).exists()
            assert known, line


def issued(service: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the relay and the nodes, by name, that the service `init` makes folders for."""
    relay, *nodes = service["command"]
    return relay, dict(node.split("=") for node in nodes)


def test_the_commands_of_the_script_exist() -> None:
    text = (ROOT / "configs/compose/init.sh").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("fednode ")]
    assert [line.split()[1] for line in lines] == ["init", "invite"]
    for line in lines:
        plain = re.sub(r'\$\{relay:\+(.*?)"\$relay"\}', r"\1 relay-1=h:1", line)
        plain = plain.replace('"$@"', "node-1=h:2").replace("${1#node-1=}", "h:2")
        parsed(shlex.split(plain)[1:])


def test_containers_are_the_nodes_that_get_folders(tmp_path: Path) -> None:
    relay, nodes = issued(OURS["init"])
    assert relay == ""
    assert list(nodes) == list(NODES)
    for name, address in nodes.items():
        found = settings_in(NODES[name]["environment"], tmp_path)
        assert address == f"{name}:{found.listen.split(':')[1]}"
        assert (found.state_dir, found.page.token) == ("/state", "a secret of 16 letters")
        (published,) = NODES[name]["ports"]
        assert published.startswith("127.0.0.1:")
        assert published.endswith(found.page.listen[-5:])


@pytest.mark.parametrize("file", ["compose.yaml", "compose.relay.yaml"])
def test_a_container_sees_its_own_key_alone(file: str) -> None:
    services = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["services"]
    seen = {place: source for source, place in mounts(services["init"])}
    relay, nodes = issued(services["init"])
    folders = [*nodes, *([relay.partition("=")[0]] if relay else [])]
    assert {f"/nodes/{name}": name for name in folders}.items() <= seen.items()
    assert seen.pop("/state") == "founder"
    owners = {"relay": folders[-1]} if relay else {}
    for name in (*nodes, *owners):
        own = {place: source for source, place in mounts(services[name])}
        assert own.pop("/state") == owners.get(name, name)
        assert set(own.items()) <= {("/watch", "watch")}
    image = DOCKERFILE.read_text(encoding="utf-8")
    for place in seen:
        assert f" {place}" in image, "a volume takes its owner from the folder of the image"


def mounts(service: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the named volumes of a service, and where it mounts them."""
    lines = [line.split(":") for line in service.get("volumes", ())]
    return [(source, place) for source, place, *_ in lines if not source.startswith(".")]


def test_five_sites_behind_a_relay_open_no_port(tmp_path: Path) -> None:
    tree = yaml.safe_load((ROOT / "compose.relay.yaml").read_text(encoding="utf-8"))
    services = tree["services"]
    relay, listed = issued(services["init"])
    nodes = {name: services[name] for name in listed}
    assert set(listed.values()) == {"relay"}
    listen = parsed(services["relay"]["command"]).params["listen"]
    assert relay == f"relay-1=relay:{listen.split(':')[1]}"
    assert not any("ports" in one for one in services.values())
    sites = [tuple(one["networks"]) for one in nodes.values()]
    assert sorted(services["relay"]["networks"]) == sorted(site for (site,) in sites)
    assert len(set(sites)) == len(nodes) == 5
    assert all(tree["networks"][site] == {"internal": True} for (site,) in sites)
    for name, service in services.items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        if name in nodes:
            found = settings_in(service["environment"], tmp_path)
            assert (found.listen, found.page.listen) == (None, "127.0.0.1:0")
        for line in service.get("volumes", ()):
            source = line.split(":")[0]
            assert source in tree["volumes"] or (ROOT / source).exists(), line


def test_the_image_runs_as_nobody_in_particular() -> None:
    text = (ROOT / "bootstrap" / "Dockerfile").read_text(encoding="utf-8")
    last = text[text.rindex("\nFROM ") :]
    user = re.search(r"^USER (\w+)$", last, re.M)
    assert user is not None
    assert f"useradd --uid 10001 --home-dir /state --no-create-home {user[1]}" in last
    assert last.index("USER") < last.index("ENTRYPOINT")
    parsed(json.loads(re.search(r"\nCMD (\[.*\])", last)[1]))  # type: ignore[index]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        for source in line.split():
            assert f"!{source.split('/')[0]}" in ignored, source


def test_the_base_image_is_an_argument_that_takes_a_digest() -> None:
    text = (ROOT / "bootstrap" / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)", text, re.M) == ["${BASE}", "${BASE}"]
    python = re.search(r"^ARG PYTHON=(\S+)$", text, re.M)
    assert python is not None
    assert "ARG BASE=python:${PYTHON}-slim" in text
    given = OURS["init"]["build"]["args"]["BASE"]
    assert given == f"${{BASE:-python:{python[1]}-slim}}"


# systemd ---------------------------------------------------------------------------------------


def test_the_unit_starts_a_node() -> None:
    text = (ROOT / "configs" / "systemd" / "fednode@.service").read_text(encoding="utf-8")
    command = re.search(r"^ExecStart=(.*)$", text, re.M)
    assert command is not None
    words = shlex.split(command[1].replace("%i", "a").replace("%S", "/var/lib"))
    assert words[0].endswith("/bin/fednode")
    assert str(parsed(words[1:]).params["state"]) == "/var/lib/fednode/a"


# Prometheus and Grafana ---------------------------------------------------------------------------


def exposed() -> set[str]:
    """Return the names of all samples that a node exposes."""
    metrics = Metrics()
    now = StatusReply(
        name="a",
        mesh="m",
        policy="zerodfl",
        model="fednode-mini",
        life="running",
        round=1,
        metrics={"loss": 0.5},
        measured={"own": 1.0},
        peers=[Peer(state="alive")],
        refused={"x": 1},
    )
    metrics.watch(lambda: now)
    metrics.message("out", "offer", "ok", 10)
    text = metrics.text()[0].decode()
    return {one.name for family in text_string_to_metric_families(text) for one in family.samples}


def queries() -> Iterator[str]:
    for panel in json.loads((WATCH / "grafana" / "fednode.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load((WATCH / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_dashboard_and_alerts_ask_for_what_nodes_expose() -> None:
    asked = {
        name for query in queries() for name in re.findall(r"\b(?:fednode|process)_\w+", query)
    }
    assert asked
    assert asked <= exposed()
    shown = {name for name in exposed() if name.startswith("fednode_")}
    # A histogram's sum and count come with its buckets, _created with nothing.
    left = {name for name in shown - asked if not name.endswith(("_sum", "_count"))}
    assert left <= {"fednode_last_exchange_timestamp_seconds", "fednode_messages_created"}


def test_the_dashboard_is_one_that_grafana_provisions() -> None:
    board = json.loads((WATCH / "grafana" / "fednode.json").read_text())
    assert board["uid"] == "fednode"
    assert board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in board["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)  # no panel lies on another
    assert max(x for x, _ in cells) < 24
    (variable,) = (one for one in board["templating"]["list"] if one["type"] == "datasource")
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {f"${{{variable['name']}}}"}


def test_prometheus_asks_the_pages_of_all_containers() -> None:
    (job,) = yaml.safe_load((WATCH / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:8080" for name in NODES]
    assert Path(job["authorization"]["credentials_file"]).name == PAGE_TOKEN
