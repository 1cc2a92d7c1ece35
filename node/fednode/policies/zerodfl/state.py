"""The state of ZeroDFL that survives a restart, and its conversion to and from PolicyState."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        chosen: f_ij, how often a peer was sent rows and acknowledged them
        heard: newest round that each peer finished, by its messages
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
    stragglers: Stragglers = field(default_factory=Stragglers)
    loss: float | None = None
    givers: tuple[str, ...] = ()

    def reached(self, peers: Iterable[str]) -> int:
        """Return the newest round that most of these peers reached; 0 if there are no peers.

        A single peer that lies about its round does not change the result.
        """
        rounds = sorted((self.heard.get(peer, 0) for peer in peers), reverse=True)
        return rounds[len(rounds) // 2] if rounds else 0

    def hear(self, message: Message, current: int) -> None:
        """Note how far the sender of a message is. current: the round of this node."""
        self.heard[message.sender] = max(self.heard.get(message.sender, 0), message.round)
        if message.round == current:
            self.stragglers.kept(message.sender)

    def keep(self, message: Message) -> None:
        """Put the rows of a message into the pool."""
        self.pool.add(Entry(message.sender, message.round, message.tensors[ROWS]))

    def freeze(self) -> PolicyState:
        """Return the state in the form that is stored."""
        entries: dict[str, Json] = {entry.sender: [entry.round, entry.age] for entry in self.pool}
        data: dict[str, Json] = {
            "chosen": dict(self.chosen),
            "heard": dict(self.heard),
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
        held = [f"{one.sender} (round {one.round}, {len(one.rows)} rows)" for one in self.pool]
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
            stragglers=Stragglers.thaw(state.data.get(STRAGGLERS)),
            loss=loss if isinstance(loss := state.data.get("loss"), float) else None,
        )


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _counts(value: Json) -> dict[str, int]:
    return {name: int(str(count)) for name, count in sorted(_mapping(value).items())}
