"""Two nodes behind two NATs meet without a relay: a scenario of behind_nat.

`python -m tests.e2e.nat_meeting WORDS` is the command fednode, for which the lab's addresses count
as public, and which tries to meet every few seconds.
"""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path

from fednode import cli
from fednode.transports import exits, meeting
from fednode.transports.address import Endpoint
from tests.e2e.nat_faults import pause_after
from tests.e2e.nat_mesh import RELAYS, Mesh, fail, lab, say

PUBLIC = ipaddress.ip_network("198.51.100.0/24")
PACE_S = 3.0
COUNT = 4
WHY = "no connection through both NATs came about"


def met(folder: Path) -> None:
    """Nodes 1 and 2 have NATs that keep ports and go direct; 3 and 4 stay relayed."""
    for number in (3, 4):
        lab("kind", number, "symmetric")
    mesh = Mesh(folder / "mesh", COUNT, 0, 1, settings=("rounds.min_interval_s=0.2",), meeting=True)
    with mesh.running():
        mesh.until(mesh.all_at(10), "10 rounds")
        since = time.time()
        direct, relayed = {"direct": 1, "relay": 2}, {"relay": 3}
        took = mesh.until(lambda: mesh.ways(1) == mesh.ways(2) == direct, "direct", 60)
        say(f"two NATs that keep ports: direct after {took:.1f} s")
        mesh.until(lambda: WHY in whys(mesh, 3), "a try with a symmetric NAT", 60)
        say(f"behind a symmetric NAT: {whys(mesh, 3)}")
        if mesh.ways(3) != relayed or mesh.ways(4) != relayed:
            fail(f"symmetric NATs: {mesh.ways(3)}, {mesh.ways(4)}")
        lab("part", 1, 2)
        shut = mesh.until(lambda: mesh.ways(1) == mesh.ways(2) == relayed, "relayed again", 60)
        say(f"the NATs shut: relayed after {shut:.1f} s")
        at = max(mesh.rounds())
        mesh.until(mesh.all_at(at + 10), "10 rounds more")
        longest = pause_after(mesh, since)
        say(f"longest pause {longest:.1f} s; digests {mesh.digests()}")
        if shut > 15:
            fail("relayed within 15 s")


def whys(mesh: Mesh, number: int) -> str:
    """Return why a node's peers are relayed, and through which relay, by its own word."""
    peers = mesh.status(number, asker=number).get("peers", [])
    found = {(one.get("path", ""), one.get("path_why", "")) for one in peers}
    if any(path not in {"", f"relay {RELAYS[1]}"} for path, _ in found):
        fail(f"node {number}: {found}")
    return " / ".join(sorted(why for _, why in found if why))


def main() -> None:
    """Run the command fednode in the lab."""

    def public(place: Endpoint) -> bool:
        return ipaddress.ip_address(place.host) in PUBLIC and place.port >= 1024

    Endpoint.public = property(public)  # type: ignore[assignment,method-assign]
    for module, name in ((exits, "AGAIN_S"), (meeting, "PAIR_S")):
        setattr(module, name, PACE_S)
    cli.main()


if __name__ == "__main__":
    main()
