"""A local mesh starts, shows, restarts and above all ends its daemons; no one outlives it.

Method: real processes that stand in for daemons (fake_daemon.py). Nothing sleeps: tests wait for a
process to end or for its log to say something.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fednode.errors import ConfigError
from fednode.identity import keys
from fednode.identity.identity import NodeIdentity
from fednode.identity.roster import Member, Roster
from fednode.settings.peers import load_peers
from fednode_bootstrap import daemon
from fednode_bootstrap.mesh import CROWD, LocalMesh, MeshError, MeshSettings, fresh_folder
from tests.unit.bootstrap.log_observer import LogObserver

ROOT = Path(__file__).resolve().parents[3]
FAKE = "tests.unit.bootstrap.fake_daemon"
LIMIT_S = 180.0
WAYS = ("spawn", "fork") if daemon.FORKS else ("spawn",)

Make = Callable[..., LocalMesh]


def start_by(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let daemons start as forks, or as new interpreters."""
    monkeypatch.setattr(daemon, "FORKS", way == "fork")


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return what makes a mesh, whose daemons start as they do on this system."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def build(
        *settings: str,
        nodes: int = 2,
        grace_s: float = LIMIT_S,
        **more: Any,
    ) -> LocalMesh:
        asked = MeshSettings(
            run_dir=tmp_path / "mesh",
            nodes=nodes,
            settings=settings,
            poll_s=0.01,
            grace_s=grace_s,
            module=FAKE,
            **more,
        )
        return LocalMesh(asked, LogObserver(tmp_path))

    return build


def pid_of(mesh: LocalMesh, name: str) -> int:
    pid = mesh.members[name].daemon.pid
    assert pid is not None
    return pid


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_every_node_gets_its_arguments_and_all_end(make: Make, tmp_path: Path) -> None:
    async with make("tuning.lr=0.5", nodes=3) as mesh:
        assert {one.state for one in mesh.members.values()} == {"not started"}
        finished = await mesh.wait_finished(LIMIT_S)
        pids = [pid_of(mesh, name) for name in finished]
        assert [one.status and one.status.pid for one in mesh.members.values()] == pids
        assert [one.round for one in await mesh.history("node-1")] == [1, 2]
        assert (await mesh.look("node-1")).metrics["base"] == pytest.approx(0.31)
        observer = LogObserver(tmp_path)
        given = {one.name: observer.report(one.address) for one in mesh.members.values()}
    assert finished == ["node-1", "node-2", "node-3"]
    assert all(map(gone, pids))
    assert [one.daemon.exit_code for one in mesh.members.values()] == [0, 0, 0]
    folder = tmp_path / "mesh"
    peers = yaml.safe_load((folder / "peers.yaml").read_text())
    assert [one["name"] for one in peers["peers"]] == finished
    assert len({one["address"] for one in peers["peers"]}) == 3
    assert given["node-2"]["arguments"] == [
        *("start", "--peers", str(folder / "peers.yaml"), "--name", "node-2"),
        *("--set", f"state_dir={folder / 'node-2'}", "--set", "tuning.threads=1"),
        *("--set", "rounds.start.peers=2", "--set", "tuning.lr=0.5"),
    ]


@pytest.mark.parametrize(("cores", "crowded"), [(1, True), (2, False)])
async def test_the_nodes_of_a_crowded_machine_probe_seldom_and_wait_for_all_to_start(
    make: Make, monkeypatch: pytest.MonkeyPatch, cores: int, crowded: bool
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    async with make("fake.life=loading", nodes=CROWD + 1, at_once=1) as mesh:
        commands = [one.daemon.words for one in mesh.members.values()]
    assert all(("membership.preset=wan" in one) == crowded for one in commands)
    assert all(("rounds.start.timeout_s=90" in one) == crowded for one in commands)


async def test_daemons_start_a_few_at_a_time(make: Make) -> None:
    """A daemon that is not through with loading holds back the next one."""
    async with make("fake.life=loading", nodes=3, at_once=2) as mesh:
        await mesh.wait_for(
            lambda: all(mesh.members[f"node-{at}"].answers for at in (1, 2)), LIMIT_S
        )
        assert not mesh.members["node-3"].daemon.started
        mesh.kill("node-1")
        await mesh.wait_for(lambda: mesh.members["node-3"].answers, LIMIT_S)


async def test_a_daemon_that_cannot_be_started_later_ends_the_wait(make: Make) -> None:
    """The third daemon's log cannot be written, when it gets its turn."""
    async with make("fake.life=loading", nodes=3, at_once=2) as mesh:
        third = mesh.members["node-3"].daemon
        third.log.mkdir()
        await mesh.wait_for(lambda: mesh.members["node-1"].answers, LIMIT_S)
        mesh.kill("node-1")
        with pytest.raises(OSError, match=r"node-3\.log"):
            await mesh.wait_for(lambda: mesh.members["node-3"].answers, LIMIT_S)


async def test_a_daemon_that_cannot_be_started_ends_the_wait(make: Make) -> None:
    """The second daemon's log cannot be written."""
    mesh = make("fake.life=loading")
    (mesh.settings.run_dir / "node-2.log").mkdir(parents=True)
    async with mesh:
        with pytest.raises(OSError, match=r"node-2\.log"):
            await mesh.wait_for(lambda: False, LIMIT_S)


async def test_a_mesh_with_tls_gives_its_nodes_certificates(make: Make, tmp_path: Path) -> None:
    async with make(tls=True) as mesh:
        await mesh.wait_finished(LIMIT_S)
    peers = load_peers(tmp_path / "mesh/peers.yaml")
    assert not peers.insecure
    roster = Roster("local", keys.read_public(str(peers.mesh_key)))
    for one in peers.peers:
        node = NodeIdentity(tmp_path / "mesh" / one.name)
        assert roster.identify(node.own().chain) == Member(one.name, node.id)


async def test_a_daemon_that_dies_is_told_and_the_mesh_goes_on(make: Make) -> None:
    async with make("fake.exit=node-1", "fake.code=70") as mesh:
        assert await mesh.wait_finished(LIMIT_S) == ["node-2"]
        assert mesh.members["node-1"].state == "exit code 70"
    assert list(mesh.events) == [
        "node-1 ended with exit code 70; its last words: The prompt is out of ink."
    ]


async def test_kill_and_launch_keep_name_port_and_state(make: Make) -> None:
    async with make() as mesh:
        await mesh.wait_finished(LIMIT_S)
        first, address = pid_of(mesh, "node-2"), mesh.members["node-2"].address
        mesh.kill("node-2")
        await mesh.wait_for(lambda: mesh.members["node-2"].state == "signal SIGKILL", LIMIT_S)
        assert await mesh.wait_finished(LIMIT_S) == ["node-1"]
        mesh.launch("node-2")
        await mesh.wait_for(lambda: mesh.members["node-2"].done, LIMIT_S)
        assert pid_of(mesh, "node-2") != first
        assert mesh.members["node-2"].address == address
    assert gone(first)


async def test_hurrying_kills_at_once(make: Make) -> None:
    """Cancelling the stop, as a second Ctrl-C does, does not wait for the grace."""
    mesh = make("fake.stubborn=1", nodes=2, grace_s=1000.0)
    await mesh.__aenter__()
    await mesh.wait_finished(LIMIT_S)
    pids = [pid_of(mesh, name) for name in mesh.members]
    stop = asyncio.create_task(mesh.stop())
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    assert all(map(gone, pids))


async def test_running_out_of_time_names_who_is_late(make: Make) -> None:
    async with make("fake.life=running", nodes=1) as mesh:
        await mesh.wait_for(lambda: mesh.members["node-1"].answers, LIMIT_S)
        with pytest.raises(MeshError, match=r"not through .* node-1 \(running, round 2\)"):
            await mesh.wait_finished(0.0)


async def test_an_end_with_an_error_inside_stops_all(make: Make) -> None:
    mesh = make(nodes=2)
    pids: list[int] = []

    async def fail() -> None:
        async with mesh:
            await mesh.wait_finished(LIMIT_S)
            pids.extend(pid_of(mesh, name) for name in mesh.members)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert len(pids) == 2
    assert all(map(gone, pids))
    with pytest.raises(MeshError, match="is not running"):
        await mesh.wait_for(lambda: False, LIMIT_S)


ORPHANS = """
import asyncio, sys
from pathlib import Path
from fednode_bootstrap import daemon
from fednode_bootstrap.mesh import LocalMesh, MeshSettings
from tests.unit.bootstrap.log_observer import LogObserver
from tests.unit.bootstrap.test_mesh import FAKE

async def main(folder):
    daemon.FORKS = sys.argv[2] == "fork"
    settings = MeshSettings(run_dir=folder, nodes=2, settings=("fake.life=running",), module=FAKE,
                            poll_s=0.01)
    async with LocalMesh(settings, LogObserver(folder)) as mesh:
        await mesh.wait_for(lambda: all(one.answers for one in mesh.members.values()))
        print(*(one.daemon.pid for one in mesh.members.values()), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not ours")
@pytest.mark.parametrize("way", WAYS)
def test_no_daemon_outlives_a_mesh_that_is_killed(tmp_path: Path, way: str) -> None:
    command = [sys.executable, "-c", ORPHANS, str(tmp_path), way]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        ends = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    try:
        assert len(ends) == 2
        for end in ends:
            ready, _, _ = select.select([end], [], [], LIMIT_S)
            assert ready == [end]
    finally:
        for end in ends:
            os.close(end)


@pytest.mark.parametrize("way", WAYS)
def test_daemons_do_not_import_the_script_that_starts_their_mesh(tmp_path: Path, way: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(ORPHANS.replace("await asyncio.Event().wait()", "pass"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, tmp_path / "mesh", way],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes": 0}, "mesh of 0 nodes"),
        ({"nodes": 65}, "mesh of 65 nodes"),
        ({"settings": ("tuning",)}, "'tuning' is no setting"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MeshSettings(run_dir=tmp_path, **wrong)


def test_fresh_folders_are_numbered(tmp_path: Path) -> None:
    made = [fresh_folder(tmp_path / "runs", "mesh").name for _ in range(3)]
    assert made == ["mesh", "mesh-2", "mesh-3"]
