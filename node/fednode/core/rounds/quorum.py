"""How far a mesh is, as far as its members prove it: the rule that bounds each move of a node.

A node that is behind may leave out rounds. Three bounds hold for each such move, in every policy:

- It ends at `rounds.max` at the latest.
- More than half of all members are that far; the node counts as a member and not as a voice. If
  the members that do not say so are all gone, half is enough, so that a node that comes back to a
  mesh with dead members still catches up. In a mesh that peers.yaml says has two nodes, the other
  node is enough.
- A member is at most one round ahead of its newest contribution. A member that only says how far
  it is proves nothing. If only some nodes are drawn for a round, a member may be as many rounds
  ahead as nodes contribute once in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fednode.core.policy import NodeContext


def at_least_half(others: int) -> int:
    """Return how many of the other members make half of all, the asking node among all.

    At least two: one word is never enough where a third member may exist.
    """
    return max(2, (others + 2) // 2)


def majority(others: int, live: int) -> int:
    """Return how many other members make more than half of all.

    live: how many of them are live; if no more than half of all members, half is enough.
    """
    enough = at_least_half(others)
    return enough if live <= enough else max(2, (others + 1) // 2 + 1)


def quorum(context: NodeContext, known: Collection[str], live: Collection[str]) -> int:
    """Return how many of the other members have to be further, or to hold a state.

    known, live: the other members, all and those that are live.
    """
    pair = len(known) == 1 and {*context.peers} == {*known} and not context.proof
    return 1 if pair else majority(len(known), len(live))


def reached(rounds: Iterable[int], need: int) -> int:
    """Return the latest round that at least `need` of these rounds reach; 0 if there is none."""
    highest = sorted(rounds, reverse=True)
    return highest[need - 1] if need <= len(highest) else 0
