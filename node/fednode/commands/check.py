"""`fednode check`: list everything that is wrong with a node before it starts.

Packages that take long to import (torch, gRPC, aiohttp) are imported where they are needed, so that
faults of files and images come within a second.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import uvloop

from fednode.app.plan import (
    SUMS,
    NodePlan,
    facts_of,
    learner_of,
    make,
    placed,
    sums_fault,
    sums_warning,
    tie,
)
from fednode.clip.settings import MINI
from fednode.core.facts import fingerprint
from fednode.data.base import NodeData, ProgressFn
from fednode.data.images import skip_report
from fednode.data.names import visible
from fednode.errors import FednodeError
from fednode.learn.learner import Learner
from fednode.settings.peers import PeerEntry, Peers
from fednode.settings.read import load_settings
from fednode.shipped import config_file
from fednode.storage.disk import writing_fault
from fednode.storage.store import RUNS, Store, has_rounds, is_state
from fednode.terminal.options import PATH, PEERS, format_option, settings_here
from fednode.terminal.progress import Shown

if TYPE_CHECKING:
    from fednode.app.check_peers import Finding

FAULTY = 2


@click.command()
@click.option("--peers", "peers_path", type=PATH, help="Who is in the mesh [./peers.yaml].")
@click.option("--config", type=PATH, help="Settings [./node.yaml].")
@click.option("--name", help="Which entry of peers.yaml this node is [FEDNODE_NAME, host name].")
@click.option("--set", "flags", multiple=True, help="section.key=value, after all files.")
@click.option("--state", type=PATH, help="State directory [state_dir, ~/.local/state/fednode].")
@click.option(
    "--schema",
    type=click.Choice(["node", "peers"]),
    help="Print the JSON schema of node.yaml or peers.yaml, for editors; check nothing.",
)
@click.option("--model", help="Show what a model takes, as model.name has it; check nothing else.")
@format_option
def check(
    peers_path: Path | None,
    config: Path | None,
    name: str | None,
    flags: tuple[str, ...],
    state: Path | None,
    schema: str | None,
    model: str | None,
    as_json: bool,
) -> int:
    """List what is wrong with settings, data, model, port, state and peers; start nothing.

    Without a peers.yaml, only the parts that need no mesh are checked. The exit code is 2 if there
    is a fault.
    """
    if schema is not None:
        click.echo(config_file(f"schema/{schema}.json").read_text(encoding="utf-8"), nl=False)
        return 0
    if model is not None:
        from fednode.commands.model import show_model

        return show_model(model, as_json)
    kept = "The check is not complete. What was examined is kept for the next one."
    peers = peers_path or (PEERS if PEERS.is_file() else None)
    plan_of = partial(_plan, peers, settings_here(config), name, flags, state)
    findings = report(plan_of, kept, printed=not as_json)
    levels = Counter(level for level, _ in findings)
    if as_json:
        click.echo(json.dumps([{"level": level, "text": text} for level, text in findings]))
    else:
        counted = {0: "No fault." if levels["warning"] else "Nothing is wrong.", 1: "1 fault."}
        click.echo(counted.get(levels["fault"], f"{levels['fault']} faults."))
    return FAULTY if levels["fault"] else 0


def report(plan_of: Callable[[], NodePlan], kept: str, printed: bool = True) -> list[Finding]:
    """Return all findings, printed as they come. kept: what Ctrl-C does not undo, in a sentence."""
    findings = list[Any]()
    with Shown(kept) as progress:
        for level, text in _caught(_look(plan_of, progress)):
            findings.append((level, text))
            if printed:
                with progress.hidden():
                    click.echo(f"{level}: {text}")
    return findings


def _caught(checks: Iterator[Finding]) -> Iterator[Finding]:
    """Yield what checks find; the error that ends them is a fault."""
    try:
        yield from checks
    except FednodeError as fault:
        yield from (("fault", line) for line in str(fault).splitlines())


def _asked(question: Any) -> Iterator[Finding]:
    """Yield the answers of fednode.app.check_peers."""
    yield from uvloop.run(question)


def _look(plan_of: Callable[[], NodePlan], progress: ProgressFn) -> Iterator[Finding]:
    """Yield findings, quick ones first; skip checks that an earlier fault makes impossible."""
    plan, running = plan_of(), False
    if _has_mesh(plan):
        from fednode.app import check_peers

        running = is_state(plan.state) and uvloop.run(check_peers.runs(plan))
        if running:
            yield ("note", f"{plan.name} runs at {plan.address}.")
        yield from check_peers.port_findings(plan, running)
        if plan.peers.relays:
            yield from _caught(_asked(check_peers.relay_findings(plan)))
    if plan.state != Path() and (why := writing_fault(plan.state)):
        text = f"The state directory {plan.state} cannot be written: {why}; free space there or"
        yield ("fault", f"{text} choose another with --state.")
    data: NodeData | None = None
    if (settings := plan.settings).tuning.kind == "torch":
        from fednode.data import load
        from fednode.learn.cache import cache_of

        problems, data = load.look(settings.data, cache_of(settings.cache), progress)
        yield from problems
        if data is None:
            if settings.model.name != MINI:  # its fault stands beside those of the images
                from fednode.clip import model as clip

                clip.load(settings.model)
            return
        yield ("note", data.described(settings.data.path))
        yield ("note", visible(data.train.classes, settings.data.tell_classes))
    yield from _of_learner(plan, data, running, progress)


def _plan(
    peers: Path | None,
    config: Path | None,
    name: str | None,
    flags: tuple[str, ...],
    state: Path | None,
) -> NodePlan:
    """Return the plan of a node. peers: None for one without a mesh, to check the rest."""
    if peers is not None:
        return make(peers, config, name, flags, state)
    settings = load_settings(config, os.environ, flags)
    name = settings.name or "node"
    alone = Peers("none", (PeerEntry(name, ""),))
    state = state or (Path(settings.state_dir) if settings.state_dir else Path())
    return NodePlan(name, placed(settings, alone, name), alone, state)


def _has_mesh(plan: NodePlan) -> bool:
    return plan.peers.insecure or plan.peers.mesh_key is not None


def _of_learner(
    plan: NodePlan, data: NodeData | None, running: bool, progress: ProgressFn
) -> Iterator[Finding]:
    """Load the model, and check what needs it: class names, state directory and peers."""
    learner = learner_of(plan.settings, plan.name, data, progress)
    if text := sums_fault(plan, learner):
        yield ("fault", text)
    elif text := sums_warning(plan, learner):
        yield ("warning", text)
    said = () if data is None else (*data.notes, *skip_report(data.skipped, 1))
    notes = (note for note in (plan.policy.caution, *learner.notes) if note and note not in said)
    yield from (("note", text) for text in notes)
    facts = facts_of(plan, learner)
    if data is not None:
        yield from _of_names(plan, learner, data)
        model = f"{plan.settings.model.title} (fingerprint {learner.backbone[:12]})"
        yield ("note", f"The model is {model}.")
    if _has_mesh(plan):
        yield from _caught(_of_state(plan, facts, running))
        from fednode.app.check_peers import peer_findings

        yield from _asked(peer_findings(plan, learner, fingerprint(facts), running))


def _of_names(plan: NodePlan, learner: Learner, data: NodeData) -> Iterator[Finding]:
    """Say which class names are one and the same for the model."""
    from fednode.learn.prompt_module import indistinguishable_pairs
    from fednode.learn.torch_learner import TorchLearner

    assert isinstance(learner, TorchLearner), "there are images"
    classes = data.train.classes
    try:
        pairs = indistinguishable_pairs(learner.module.handwritten(classes), classes)
    except FednodeError:
        return  # the model has no tokenizer, and its learner needs none
    if pairs:
        sums = plan.policy.name == SUMS
        first, second = pairs[0]
        more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
        advice = (
            "images alone tell them apart"
            if sums
            else "prompts cannot tell them apart; give one another name with data.rename, take "
            f"another model, or policy {SUMS}"
        )
        yield (
            "note" if sums else "fault",
            f"The class names '{first}' and '{second}' are one and the same for "
            f"{plan.settings.model.title}{more}: {advice}.",
        )


def _of_state(plan: NodePlan, facts: dict[str, str], running: bool) -> Iterator[Finding]:
    """Check the state directory if it exists; create none. running: the node uses it."""
    from fednode.learn.privacy import read_account

    if not is_state(plan.state) or (running and not has_rounds(plan.state)):
        return
    store = None if running else Store(plan.state)
    try:
        if why := tie(store, plan, facts):
            begin = "The rounds begin anew" + (" after a restart" if running else "")
            text = f"{begin}, because {why}; earlier runs are kept in {plan.state / RUNS}."
            yield ("warning", text)
        if why or store is None:
            return
        held, (_, undecided) = store.latest(), read_account(plan.state)
        if undecided:
            yield ("fault", undecided)
        yield from (("note", text) for text in store.warnings)
        if held is not None:
            yield ("note", f"{plan.state} holds round {held.policy.round}: it goes on there.")
    finally:
        if store is not None:
            store.close()
