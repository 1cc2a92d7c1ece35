"""Play a transcript: events into a node, and below each event the effects that came out.

A file has scenes. A scene is a title ("# ..."), sentences on what must hold, the node, the effects
it shows, and events (">"). Lines of effects ("<") are written by the player. Words of an event are
the fields of its class in fednode.core.events, but for these:

- "b,c" is one event for each of the two. "@9" before an event is its time.
- Received PEER PHASE: round, tensors, classes, base and further fields of a message. tensors=3.0:
  each number of the arrays is 3. base=9.0: the digest of that state. news="c dead 5; d alive".
- Delivered and Undelivered PEER PHASE: the newest message of that phase to that peer.
- Tuned BY, TuneFailed, Adopted, AdoptFailed: the newest Tune or Adopt; training adds BY.
- restart: a new node from the newest Adopt. view FIELD ...: what `fednode status` would show.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, Final, cast

import numpy as np

from fednode import registry
from fednode.core import events as ev
from fednode.core.kernel import kernel_of
from fednode.core.policy import NodeContext, Policy
from fednode.core.settings import GuardSettings, MergeSettings, RoundSettings, StartSettings
from fednode.core.types import (
    EMPTY,
    MEASURE,
    PHASES,
    PRIVATE,
    SHARED,
    Account,
    MemberUpdate,
    Message,
    Report,
    Snapshot,
    Tensors,
    packed,
)
from fednode.testing import frame

FACTS: Final = {"policy.name": "zerodfl", "tuning.context_length": "2"}
ARRAYS: Final = {"gda": ("rows", (0, 3)), "fedotp": ("global", (1, 2))}
ROUNDS: Final = {one.name for one in fields(RoundSettings)}


def value(text: str) -> Any:
    """Return a number, a tuple or a flag; a word stays a word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse(line: str) -> tuple[list[str], dict[str, Any]]:
    """Return the words of a line and what stands behind its equality signs."""
    words = shlex.split(line)
    pairs = (one.split("=", 1) for one in words if "=" in one)
    return [one for one in words if "=" not in one], {name: value(said) for name, said in pairs}


def news(text: str) -> tuple[MemberUpdate, ...]:
    """Return members from "NAME STATE INCARNATION ADDRESS ID PROOF; ..."; "-" is nothing."""
    found = []
    for one in text.split(";"):
        name, state, number, *rest = (*one.split(), "0")[: max(3, len(one.split()))]
        address, id_, proof = (*("" if word == "-" else word for word in rest), "", "", "")[:3]
        found.append(
            MemberUpdate(name, cast("Any", state), int(number), address, id_, proof.encode())
        )
    return tuple(found)


class Player:
    """One node, which is a policy or a whole kernel, and what it asked for last."""

    def __init__(self, node: str, show: str) -> None:
        (self.kind, policy), given = parse(node)
        self.shown = set(show.split())
        parts: dict[str, dict[str, Any]] = {"rounds": {}, "start": {}, "guard": {}, "policy": {}}
        mine: dict[str, Any] = {"mesh": "mesh", "fingerprint": "fp"}
        for name, said in given.items():
            part, _, rest = name.rpartition(".")
            parts.get(part or ("rounds" if name in ROUNDS else ""), mine)[rest or name] = said
        self.account = Account(undecided=mine.pop("account", ""))
        if isinstance(mine.get("peers"), str):
            mine["peers"] = tuple(filter(None, mine["peers"].split(",")))
        if "merge" in parts["policy"]:
            parts["policy"]["merge"] = MergeSettings(rule=parts["policy"]["merge"])
        self.method = registry.policy(policy)
        self.config = self.method.config_type(**parts["policy"])
        rounds = RoundSettings(
            **{"mode": self.method.modes[0], "max": 9, **parts["rounds"]},
            start=StartSettings(**parts["start"]),
        )
        guard = GuardSettings(**parts["guard"])
        self.context: NodeContext = frame(policy, rounds=rounds, guard=guard, **mine)
        self.array, self.shape = ARRAYS.get(policy, ("context", (1, 2)))
        self.now, self.sent = 0.0, dict[tuple[str, str], Message]()
        self.tune: ev.Tune | None = None
        self.adopt: ev.Adopt | None = None
        self.names = {EMPTY.digest: "nothing"}
        self.begin(None)

    def begin(self, stored: Snapshot | None) -> None:
        """Make the node, from what it stored last or anew."""
        kind, config, node = self.method, self.config, self.context
        self.step: Callable[[float, ev.Event], Sequence[ev.Effect]]
        if self.kind == "kernel":
            first = self.filled(0.0)
            self.kernel = kernel_of(
                node, kind, config, lambda _: first, FACTS, stored, account=self.account
            )
            self.context, self.step = self.kernel.context, self.kernel.step
        else:
            first = self.filled(0.0)
            self.alone = (
                kind.restore(config, node, stored.policy)
                if stored
                else kind.start(config, node, first)
            )
            self.step = self.alone.handle

    @property
    def policy(self) -> Policy:
        return self.kernel.policy if self.kind == "kernel" else self.alone

    # In ------------------------------------------------------------------------------------------

    def play(self, line: str) -> list[str]:
        """Let the events of a line happen; return the lines of what came out."""
        words, given = parse(line)
        if words[0].startswith("@"):
            self.now = float(words.pop(0)[1:])
        kind, *words = words
        if kind == "view":
            seen = self.kernel.view() if self.kind == "kernel" else self.policy
            return [f"view {' '.join(f'{one}={self.text(getattr(seen, one))}' for one in words)}"]
        if kind == "restart":
            self.begin(cast("ev.Adopt", self.adopt).snapshot)
            return []
        several = words[0].split(",") if words else [""]
        effects: list[ev.Effect] = []
        for first in several:
            event = self.event(kind, [first, *words[1:]] if words else [], {**given})
            effects += self.step(self.now, event)
        return [text for one in effects if (text := self.effect(one))]

    def event(self, kind: str, words: list[str], given: dict[str, Any]) -> ev.Event:
        match kind:
            case "Received":
                token = given.pop("token", 7)
                return ev.Received(self.message(words[0], words[1], given), token)
            case "Delivered" | "Undelivered":
                to, phase, *rest = words
                sent = self.sent[to, phase]
                return cast("ev.Event", getattr(ev, kind)(to, sent, *rest, **given))
            case "Tuned" | "TuneFailed":
                job = cast("ev.Tune", self.tune).job
                if kind == "TuneFailed":
                    return ev.TuneFailed(job, *words)
                return ev.Tuned(job, self.report(job.tensors, job.stage, words, given))
            case "Adopted":
                return ev.Adopted(cast("ev.Adopt", self.adopt).snapshot)
            case "AdoptFailed":
                return ev.AdoptFailed(cast("ev.Adopt", self.adopt), *words)
            case "MemberNews":
                return ev.MemberNews(news(" ".join(words)))
            case "RoundDue":
                names = {name: filter(None, said.split(",")) for name, said in given.items()}
                return ev.RoundDue(
                    int(words[0]), **{name: frozenset(names[name]) for name in names}
                )
            case "Claimed":
                return ev.Claimed(words[0], int(words[1]), self.base(value(words[2])))
        return cast("ev.Event", getattr(ev, kind)(*words, **given))

    def message(self, peer: str, phase: str, given: dict[str, Any]) -> Message:
        """Return a peer's message, which a node takes but for what is given."""
        number = 0 if phase in PHASES else self.policy.round + 1
        said = {name: one for name, one in given.items() if not name.startswith("facts.")}
        facts = {
            name[6:]: self.digest(one) if isinstance(one, str) else str(one)
            for name, one in given.items()
            if name.startswith("facts.")
        }
        if phase == "prompts" and hasattr(self.policy, "now"):
            said = {"base": self.policy.now.held.digest, "round": self.policy.now.number, **said}
        tensors = EMPTY
        if "tensors" in said:
            prefix = SHARED if phase == "state" else ""
            tensors = self.filled(said.pop("tensors"), said.pop("classes", ""), prefix)
            self.text(tensors)
        if "base" in said:
            said["base"] = self.base(said.pop("base"))
        if "news" in said:
            said["members"] = news(said.pop("news"))
        like = self.context.message(said.pop("round", number), phase, tensors, facts)
        return replace(like, **{"sender": peer, **said})

    def report(
        self, tensors: Tensors, stage: str, words: Sequence[str], given: dict[str, Any]
    ) -> Report:
        """Return what a learner reports; carry=2.0: its private arrays."""
        carry = EMPTY
        if "carry" in given:
            own = np.full(self.shape, given.pop("carry"))
            carry = Tensors({PRIVATE + "local": own, "local/momentum_buffer": own + 7})
        if "tensors" in given:
            tensors = self.filled(given.pop("tensors"), given.pop("classes", ""))
        elif stage != MEASURE:
            by = np.float32(words[0] if words else 1.0)
            tensors = Tensors({name: one + by for name, one in tensors.items()}, tensors.classes)
        return Report(tensors=tensors, metrics={"loss": 0.5, **given}, samples=8, carry=carry)

    def filled(self, number: float, classes: str = "", prefix: str = "") -> Tensors:
        """Return arrays of one number; of classes, a row each."""
        names = tuple(filter(None, classes.split(",")))
        shape = (len(names), 3) if names else self.shape
        return Tensors({prefix + self.array: np.full(shape, number)}, names)

    def digest(self, text: str) -> str:
        """Return the digest that is shown as a text; other texts stay as they are."""
        return next((one for one, shown in self.names.items() if shown == text), text)

    def base(self, said: Any) -> str:
        """Return the digest of the state whose numbers are all alike; a word is one itself."""
        if isinstance(said, str):
            return said
        state = packed(self.filled(said), EMPTY)
        self.names[state.digest] = str(said)
        return state.digest

    # Out -----------------------------------------------------------------------------------------

    def effect(self, one: ev.Effect) -> str:
        """Return the line of an effect, "" if it is not shown; keep what an event may refer to."""
        name, said = type(one).__name__, list[str]()
        match one:
            case ev.Send(to=to, message=message):
                self.sent[to, message.phase] = message
                kind = message.phase
                said = [to, kind, *self.said(message, {"sender", "mesh", "fingerprint", "policy"})]
                said += [f"limit={one.limit_s:.3g}"] if one.limit_s else []
            case ev.Tune(job=job):
                self.tune, kind = one, job.stage
                said = [kind, *self.said(job, {"stage", "seed", "rounds"})]
            case ev.Adopt(snapshot=snapshot):
                self.adopt, kind, state = one, "", snapshot.policy
                same = {"tuned"} if state.tuned == state.tensors else set[str]()
                said = [*self.said(state, {"data"} | same), f"givers={','.join(one.givers)}"]
                if snapshot.best_round:
                    said.append(f"best={self.text(snapshot.best)} of {snapshot.best_round}")
            case ev.Record(kind=kind, level=level, text=text):
                said = [level, f"{kind}:", text]
            case _:
                kind = getattr(one, "name", "")
                shown = [(getattr(one, each.name), each.default) for each in fields(one)]
                said = [self.text(got) for got, default in shown if got != default]
        if self.shown and not {name, f"{name}:{kind}"} & self.shown:
            return ""
        return " ".join(filter(None, (name, *said)))

    def said(self, one: Any, hidden: set[str]) -> list[str]:
        """Return the fields of a dataclass that differ from their defaults."""
        found = []
        for each in fields(one):
            got = getattr(one, each.name)
            if each.name in hidden | {"phase", "samples", "boot", "dtype"}:
                continue
            if each.name == "facts":
                found += [f"{name}={self.text(fact)}" for name, fact in got.items()]
            elif each.default is MISSING or got != each.default:
                label = {"members": "news"}.get(each.name, each.name)
                found.append(f"{label}={self.text(got)}")
        plain = getattr(one, "phase", "") in PHASES
        return [text for text in found if not plain or text != "tensors="]

    def text(self, one: Any) -> str:
        """Return something short and stable: names for digests, one number for equal ones."""
        match one:
            case Tensors():
                shown = self.tensors(one)
                self.names |= {one.digest: shown, packed(one, EMPTY).digest: shown}
                return shown
            case MemberUpdate():
                rest = (one.address, one.id, one.proof.decode())
                return " ".join((one.name, one.state, str(one.incarnation), *filter(None, rest)))
            case float():
                return f"{one:.4g}"
            case str():
                return self.names.get(one, one[:6] if len(one) == 64 else one)
            case tuple() if one and isinstance(one[0], MemberUpdate):
                return f'"{"; ".join(map(self.text, one))}"'
            case tuple() if one and hasattr(one[0], "failures"):
                rows = [(each.name, each.state, str(each.round or ""), each.reason) for each in one]
                said = [" ".join(filter(None, row)) for row in rows]
                return f'"{"; ".join(said)}"'
            case tuple() | list():
                return ",".join(map(self.text, one))
            case dict():
                return ",".join(f"{name}:{self.text(each)}" for name, each in one.items())
        return str(one)

    def tensors(self, one: Tensors) -> str:
        """Return the numbers of arrays, of one array without its name."""
        found = []
        for name, array in one.items():
            numbers = [f"{each:.4g}" for each in array.ravel()]
            short = numbers[0] if len(set(numbers)) == 1 else f"[{','.join(numbers)}]"
            plain = name.removeprefix(SHARED) == self.array
            found.append(short if plain else f"{name}:{short}")
        return "+".join(found) + (f" of {','.join(one.classes)}" if one.classes else "")


def play(scene: str) -> str:
    """Return a scene with what its node does today."""
    lines = [line for line in scene.splitlines() if not line.startswith("<")]
    set_up = {key: line.removeprefix(f"{key}: ") for line in lines for key in ("node", "show")
              if line.startswith(f"{key}: ")}  # fmt: skip
    player, found = Player(set_up["node"], set_up.get("show", "")), list[str]()
    for line in lines:
        found.append(line)
        if line.startswith("> "):
            found += [f"< {one}".rstrip() for one in player.play(line[2:])]
    return "\n".join(found)
