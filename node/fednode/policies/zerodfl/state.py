"""The state of ZeroDFL that survives a restart, and its conversion to and from PolicyState."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fednode.core.rounds.stragglers import STRAGGLERS, Stragglers
from fednode.core.types import EMPTY, Json, Message, PolicyState, Tensors
from fednode.policies.zerodfl.pool import Entry, Pool

POOL = "pool."
ROWS = "context"
"""Name of the exchanged array, [m, width]."""


@dataclass(slots=True, kw_only=True)
class Memory:
    """The mutable state of one node.

    Attributes:
        chosen: f_ij, how often a peer was drawn as a recipient
        heard: newest round that each peer finished, by its messages
        proved: newest round of which each peer sent rows
        loss: the validation loss of the last tuning, for the gate; None if there is no gate
        givers: peers whose rows the last merge used; not stored
    """

    tensors: Tensors
    pool: Pool
    round: int = 0
    tuned: Tensors = EMPTY
    carry: Tensors = EMPTY
    chosen: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    proved: dict[str, int] = field(default_factory=dict)
    stragglers: Stragglers = field(default_factory=Stragglers)
    loss: float | None = None
    givers: tuple[str, ...] = ()

    def round_of(self, peer: str) -> int:
        """Return how far a peer is: as it says, and at most one round beyond its newest rows."""
        return min(self.heard.get(peer, 0), self.proved.get(peer, 0) + 1)

    def hear(self, message: Message, current: int) -> None:
        """Note how far the sender of a message is. current: the round of this node."""
        sender, number = message.sender, message.round
        self.heard[sender] = max(self.heard.get(sender, 0), number)
        if message.tensors:
            self.proved[sender] = max(self.proved.get(sender, 0), number)
        if number == current:
            self.stragglers.kept(sender)

    def keep(self, message: Message) -> None:
        """Put the rows of a message into the pool."""
        self.pool.add(Entry(message.sender, message.round, message.tensors[ROWS]))

    def freeze(self) -> PolicyState:
        """Return the state in the form that is stored."""
        entries: dict[str, Json] = {entry.sender: [entry.round, entry.age] for entry in self.pool}
        data: dict[str, Json] = {
            "chosen": dict(self.chosen),
            "heard": dict(self.heard),
            "proved": dict(self.proved),
            "pool": entries,
            STRAGGLERS: self.stragglers.freeze(),
        }
        if self.loss is not None:
            data["loss"] = self.loss
        arrays = Tensors({POOL + entry.sender: entry.rows for entry in self.pool})
        return PolicyState(self.round, self.tensors, self.tuned, self.carry, data, arrays)

    def shown(self) -> Mapping[str, Json]:
        """Return how often each peer was chosen (column), and the rows in the pool (text)."""
        counts: dict[str, Json] = {name: self.chosen[name] for name in sorted(self.chosen)}
        held = [
            f"{entry.sender} (round {entry.round}, {len(entry.rows)} rows)" for entry in self.pool
        ]
        return {"chosen": counts, **({"pool": ", ".join(held)} if held else {})}

    @classmethod
    def thaw(cls, state: PolicyState, pool_age: int) -> Memory:
        """Return the memory of a stored state."""
        pool = Pool(pool_age)
        for sender, place in sorted(_mapping(state.data.get("pool")).items()):
            if isinstance(place, list) and POOL + sender in state.arrays:
                number, age = (int(str(value)) for value in place)
                pool.add(Entry(sender, number, state.arrays[POOL + sender], age))
        return cls(
            tensors=state.tensors,
            pool=pool,
            round=state.round,
            tuned=state.tuned,
            carry=state.carry,
            chosen=_counts(state.data.get("chosen")),
            heard=_counts(state.data.get("heard")),
            proved=_counts(state.data.get("proved")),
            stragglers=Stragglers.thaw(state.data.get(STRAGGLERS)),
            loss=loss if isinstance(loss := state.data.get("loss"), float) else None,
        )


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _counts(value: Json) -> dict[str, int]:
    return {name: int(str(count)) for name, count in sorted(_mapping(value).items())}
