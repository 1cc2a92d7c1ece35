"""A node's life, as status shows it.

    loading --(model and images are there)--> waiting
    waiting --(enough peers, or the time is up)--> running --(rounds.max adopted)--> finished
    running <--pause, resume--> paused    any --leave--> leaving

A node that waits or has finished can be paused, too; after "resume" it runs.
"""

from __future__ import annotations

from enum import StrEnum


class Life(StrEnum):
    """A state of the drawing above. In LOADING a node has no kernel yet."""

    LOADING = "loading"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    LEAVING = "leaving"
