"""Run a module as a program that ends when the process that started it ends.

`python -m fednode_bootstrap.tether MODULE ARGUMENT...` watches its standard input. The starter
holds the other end and never writes to it. However the starter ends, kill -9 included, the kernel
closes that end. The program then gets SIGTERM, and SIGKILL if it still runs after GRACE_S. So no
daemon outlives its local mesh, on any POSIX system and without a handshake.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

GRACE_S: Final = 10.0


def watch(descriptor: int, grace_s: float = GRACE_S) -> None:
    """Block until the descriptor reaches its end, then end this process."""
    while True:
        try:
            if not os.read(descriptor, 4096):
                break
        except OSError:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Take the module and its arguments from the command line and run it as __main__."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m fednode_bootstrap.tether MODULE ARGUMENT...")
    # Give the program an empty input of its own, so that nothing else reads from the tether.
    tether = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    threading.Thread(target=watch, args=(tether,), name="tether", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
