"""A mesh of daemons, each behind a NAT of its own, for tests that run inside of nat_lab.sh.

    nat_lab.sh with 5 -- python -m tests.e2e.behind_nat SCENARIO FOLDER

The nodes n1, n2, ... run behind NATs that drop what comes in and let out TCP to port 443 alone. The
relays run on the public host. The script prints what it measured, and ends with 1 if a bar is not
met. All files of all nodes are in FOLDER, which every namespace sees.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.nat_cost import rounds, sizes
from tests.e2e.nat_faults import cut, drained, faults, hung, killed, none, opened
from tests.e2e.nat_mesh import Mesh, fail, lab, say
from tests.e2e.nat_secrets import secrets

TINYPROXY = """Port 3128
Listen 198.51.100.252
Timeout 600
ConnectPort 443
BasicAuth me secret
"""
SQUID = """http_port 198.51.100.252:3128
acl relays port 443
http_access deny !relays
http_access allow all
cache deny all
access_log none
cache_log /dev/null
pid_filename none
coredump_dir /tmp
"""


def proxied(folder: Path) -> None:
    """Nodes whose sites let out connections to a proxy alone: tinyproxy with a password, squid."""
    folder.mkdir()
    for number in range(1, 6):
        lab("only", number, 3128)
    for program, text, login in (("tinyproxy", TINYPROXY, "me:secret@"), ("squid", SQUID, "")):
        if shutil.which(program) is None:
            say(f"{program} is not installed: skipped")
            continue
        config = folder / f"{program}.conf"
        config.write_text(text)
        flags = ["-d", "-c"] if program == "tinyproxy" else ["-N", "-f"]
        words = [program, *flags, str(config)]
        proxy = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            through(folder / program, f"http://{login}198.51.100.252:3128")
        finally:
            proxy.kill()  # squid would wait half a minute for its clients
            proxy.wait()


def through(folder: Path, url: str) -> None:
    """60 rounds and the status of a peer through a proxy; no file of a node has the password."""
    os.environ["FEDNODE_PROXY"] = url
    mesh = Mesh(folder, 3, rounds=60)
    with mesh.running():
        mesh.until(mesh.all_at(60), "60 rounds")
        peer = mesh.status(2)
        say(f"{folder.name}: digests {mesh.digests()}; n2 asked by n1: {peer.get('round', peer)}")
    files = [one for one in folder.rglob("*") if one.is_file()]
    wrong = [str(one) for one in files if b"secret" in one.read_bytes()]
    if int(peer.get("round", 0)) != 60:
        fail(f"status through the proxy: {peer}")
    if wrong or len(mesh.digests()) != 1:
        fail(f"the bits differ, or the password is in {wrong}")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    **{one.__name__: one for one in (rounds, sizes, secrets, proxied, opened)},
    "lost": faults(2, drained, killed, hung),
    "alone": faults(1, cut, none),
}


def main() -> None:
    """Play a scenario."""
    os.environ["PYTHONUNBUFFERED"] = "1"
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    say("passed")


if __name__ == "__main__":
    main()
