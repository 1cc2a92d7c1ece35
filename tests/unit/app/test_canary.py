"""Two hundred planted names of files, folders, patients and a class: none leaves its own site.

Method: node a, whose images have the planted names, and node b run whole in this process, over
mutual TLS. A *channel* is a way on which anything of a leaves its site. Each channel is searched,
and for each a planted defect shows that the search finds a name that is let out.
tests/e2e/test_canary.py does the same with processes.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from click.testing import CliRunner
from PIL import Image

from fednode.app.client import client_of
from fednode.app.invite import link_for
from fednode.clip import model as clip
from fednode.clip.settings import ModelSettings
from fednode.commands import export as export_command
from fednode.core import events as ev
from fednode.core.events import Record
from fednode.enrolment import invitation
from fednode.enrolment.client import Newcomer
from fednode.errors import FednodeError
from fednode.identity.certificates import Credential
from fednode.identity.identity import NodeIdentity
from fednode.lab.commands import track as tracking
from fednode.lab.commands.track import Run
from fednode.observe import audience, page
from fednode.observe.client import Client
from fednode.observe.logs import Json
from fednode.transports.grpc import GrpcTransport
from tests.unit.app.canary import (
    ASKED,
    CLASS,
    MESH,
    Node,
    damage,
    found,
    keyed,
    plant,
    running,
)
from tests.unit.identity.people import SmallMesh
from tests.unit.observe.pages import DOCUMENTS

GUARD_S = 180.0
LEAK = "canary-007"
pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMON = (
    *("policy.name=promptfl", "rounds.mode=sync", "rounds.max=2", "rounds.deadline_s=100"),
    *("data.shots=1", "tuning.context_length=4", "tuning.epochs=1", "tuning.batch_size=4"),
    *("membership.preset=local", "tuning.evaluate_every=1"),
)


@dataclass
class Site:
    """Node a, its peer b, the folder of both state directories, and the keys of their mesh."""

    a: Node
    b: Node
    folder: Path
    keys: SmallMesh

    @property
    def at(self) -> str:
        return self.a.plan.address

    def client(self, name: str) -> Client:
        """Return a client with the key of a node."""
        return client_of(self.a.plan.peers, self.folder / name)


@pytest.fixture(scope="module")
def one_model() -> Iterator[None]:
    """Load the model once for both nodes and all exports."""
    load, held = clip.load, list[clip.FrozenClip]()

    def once(settings: ModelSettings, shared: Any = None) -> clip.FrozenClip:
        if not held:
            held.append(load(settings))
        return held[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip, "load", once)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, one_model: None) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("sites")
    root, planted = plant(folder)
    assert planted >= 200
    mesh = keyed(folder, "a", "b")
    clip.load(ModelSettings())
    flags = (*COMMON, f"cache.folder={folder / 'cache'}")
    own = (f"data.path={root}", "data.tell_classes=false", "page.listen=127.0.0.1:0")
    theirs = ("data.classes=[barrel, beaver]", "data.test=0", "page.listen=null")
    # Images that go and images that are damaged while the node runs are recorded, too.
    start_a = running(folder, "a", *flags, *own, "data.test=0.1", loaded=lambda: damage(root))
    async with start_a as a, running(folder, "b", *flags, *theirs) as b:
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(a.until("life.finished"), b.until("life.finished"))
        a.servers.events.record(Record("tune.failed", f"{root / LEAK}.png is damaged", "warning"))
        yield Site(a, b, folder, mesh)


Channel = Callable[[Site], Awaitable[bytes]]
Defect = Callable[[pytest.MonkeyPatch, Site], None]


async def frames(site: Site) -> bytes:
    return await site.a.tape.more(site.a.tape.frames, 2)


async def answers(site: Site) -> bytes:
    return await site.a.tape.more(site.a.tape.answers, 12)


def asked(how: Callable[[Client, str], Awaitable[bytes]]) -> Channel:
    async def member(site: Site) -> bytes:
        async with site.client("b") as client:
            return await how(client, site.at)

    return member


def shown(*paths: str) -> Channel:
    async def visitor(site: Site) -> bytes:
        said = b""
        async with aiohttp.ClientSession() as web:
            for path in paths:
                async with web.get(site.a.servers.service.page + path) as answer:
                    assert answer.status == 200
                    said += await answer.read()
        return said

    return visitor


async def kept(site: Site) -> bytes:
    """Return all that b keeps: its records as its log has them, and its state directory."""
    await site.a.tape.more(site.a.tape.answers, 2)
    made = [{"msg": one.record.text, "record": one.record} for one in site.b.servers.events.details]
    records = "\n".join(map(Json(MESH, "b").format, map(logging.makeLogRecord, made)))
    files = [one for one in sorted((site.folder / "b").rglob("*")) if one.is_file()]
    return records.encode() + b"".join(one.read_bytes() for one in files)


async def stranger(site: Site) -> bytes:
    """Return what a key that nobody lists gets: the certificate, and why each call fails."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = site.at.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    told: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    transport = GrpcTransport(SmallMesh(MESH).own("b"), site.keys.roster())
    async with Client(3.0, transport) as client:
        for ask in ASKED.values():
            with pytest.raises(FednodeError) as refusal:
                await ask(client, site.at)
            told += str(refusal.value).encode()
    return told


async def enrolment(site: Site) -> bytes:
    """Return what node a, a sponsor, tells a newcomer, and the link that its operator sends."""
    sponsor = site.a.mesh.sponsor
    assert sponsor is not None
    folder = site.folder / f"newcomer-{len([*site.folder.iterdir()])}"
    link = await asyncio.to_thread(link_for, folder.name, site.a.plan, sponsor.ledger)
    await sponsor.look()
    new = Newcomer(invitation.decode(link), NodeIdentity.create(folder))
    told = [await new.describe(), await new.enrol("127.0.0.1:9")]
    return "\n".join([link, *map(str, told)]).encode()


async def exports(site: Site) -> bytes:
    """Return prompts exported in each layout; their class names are told by design."""
    to, run = site.folder / "exported", CliRunner()
    for layout in export_command.LAYOUTS:
        words = [str(to / layout), "--state", str(site.folder / "a"), "--as", layout]
        (to / layout).parent.mkdir(exist_ok=True)
        done = await asyncio.to_thread(run.invoke, export_command.export, words)
        assert done.exit_code == 0, done.output
    return b"".join(one.read_bytes() for one in to.rglob("*") if one.is_file())


async def tracker(site: Site) -> bytes:
    """Return what the operator's own `fednode track` gives to a tracker."""
    given: list[object] = []

    @contextmanager
    def taking(run: Run) -> Iterator[tracking.Log]:
        given.append(run)
        yield lambda number, values: given.append((number, values))

    make = lambda: site.client("a")  # noqa: E731
    await tracking.follow(make, site.at, taking, Path("tracked"), once=True)
    return repr(given).encode()


# The planted defects -------------------------------------------------------------------------


def each_effect(
    change: Callable[[ev.Effect], ev.Effect],
) -> Defect:
    """Return a defect of node a's kernel, which changes its effects."""

    def defect(patch: pytest.MonkeyPatch, site: Site) -> None:
        kernel = site.a.driver.kernel
        step = kernel.step
        patch.setattr(kernel, "step", lambda now, event: [*map(change, step(now, event))])

    return defect


def in_a_fact(effect: ev.Effect) -> ev.Effect:
    if not isinstance(effect, ev.Send):
        return effect
    facts = {**effect.message.facts, "images": LEAK}
    return replace(effect, message=replace(effect.message, facts=facts))


def in_a_detail(effect: ev.Effect) -> ev.Effect:
    return replace(effect, detail=LEAK) if isinstance(effect, ev.Answer) else effect


def in_a_refusal(effect: ev.Effect) -> ev.Effect:
    if not isinstance(effect, ev.Answer):
        return effect
    return replace(effect, code="refused", detail=f"{LEAK}.png is damaged")


def everything_is_told(patch: pytest.MonkeyPatch, site: Site) -> None:
    patch.setattr(audience, "told", lambda record: True)
    patch.setattr(page, "told", lambda record: True)


def nothing_is_hidden(patch: pytest.MonkeyPatch, site: Site) -> None:
    service = site.a.servers.service
    now = service.now
    patch.setattr(service, "now", lambda member=False: now())


def in_a_figures_name(patch: pytest.MonkeyPatch, site: Site) -> None:
    store = site.a.servers.service._store
    history = store.history

    def named(since: int, limit: int) -> Any:
        rows = history(since, limit)
        return [(number, {LEAK: 1.0}, traffic, digest) for number, _, traffic, digest in rows]

    patch.setattr(store, "history", named)


def in_a_label(patch: pytest.MonkeyPatch, site: Site) -> None:
    reply = site.a.servers.service.now()
    reply.model = str(site.a.plan.settings.data.path)
    patch.setattr(site.a.servers.metrics, "_read", lambda: reply)


def in_the_certificate(patch: pytest.MonkeyPatch, site: Site) -> None:
    identity = site.a.mesh.identity
    assert identity is not None
    chain = site.keys.sponsor.node(LEAK, identity.key.public_key())
    patch.setattr(identity, "_credential", Credential(identity.own().key, chain))


def in_shared_settings(patch: pytest.MonkeyPatch, site: Site) -> None:
    patch.setattr("fednode.app.sponsor.shared_text", lambda _: LEAK)


def in_metadata(patch: pytest.MonkeyPatch, site: Site) -> None:
    facts = export_command._facts
    more = {"images": site.a.plan.settings.data.path}
    patch.setattr(export_command, "_facts", lambda prompts: {**facts(prompts), **more})


def in_settings_of_a_run(patch: pytest.MonkeyPatch, site: Site) -> None:
    run_of = tracking.run_of

    def noted(status: Any, *rest: Any) -> Run:
        run = run_of(status, *rest)
        return replace(run, settings={**run.settings, "notes": " ".join(status.notes)})

    patch.setattr(tracking, "run_of", noted)


CHANNELS: Mapping[str, tuple[Channel, Defect]] = {
    "frames": (frames, each_effect(in_a_fact)),
    "answers to frames": (answers, each_effect(in_a_detail)),
    "status": (asked(ASKED["status"]), nothing_is_hidden),
    "watch": (asked(ASKED["watch"]), everything_is_told),
    "history": (asked(ASKED["history"]), in_a_figures_name),
    "page": (shown("", *DOCUMENTS), everything_is_told),
    "metrics": (shown("metrics"), in_a_label),
    "what a peer keeps": (kept, each_effect(in_a_refusal)),
    "stranger": (stranger, in_the_certificate),
    "enrolment": (enrolment, in_shared_settings),
    "exports": (exports, in_metadata),
    "tracker": (tracker, in_settings_of_a_run),
}
"""Each way on which anything leaves a site, and a planted defect that lets a name out on it."""


@pytest.mark.parametrize("channel", CHANNELS)
async def test_no_planted_name_leaves_its_site(site: Site, channel: str) -> None:
    async with asyncio.timeout(GUARD_S):
        content = await CHANNELS[channel][0](site)
    assert len(content) > 30
    assert found(content, CLASS if channel == "exports" else b"") == set()


async def test_the_operator_sees_names(site: Site) -> None:
    """Otherwise the other tests would search for names that nobody knows."""
    async with site.client("a") as client:
        told = {name: await how(client, site.at) for name, how in ASKED.items()}
    assert len(found(told["status"] + told["watch"])) >= 3
    assert CLASS in found(told["status"])
    assert LEAK.encode() in found(told["watch"])
    assert site.b.servers.service.page == "", "page.listen is null"


@pytest.mark.parametrize("channel", CHANNELS)
async def test_a_name_that_is_let_out_is_found(
    site: Site, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.a.tape.clear()
    CHANNELS[channel][1](monkeypatch, site)
    leaves, names = CLASS if channel == "exports" else b"", set[bytes]()
    async with asyncio.timeout(GUARD_S):
        while not names:  # what a said may not have reached b at once
            names = found(await CHANNELS[channel][0](site), leaves)
    assert names != set()


# A class of fewer images than privacy.least_images, with policy gda ------------------------

SENT = ("frames", "what a peer keeps")
MEMBERS = (*SENT, "answers to frames", *ASKED, "page", "metrics")
SUMS = (
    *("policy.name=gda", "rounds.max=2", "rounds.min_interval_s=0", "rounds.deadline_s=100"),
    *("data.shots=0", "membership.preset=local"),
)
COUNTS = {"cyst": 8, "lesion": 8, CLASS.decode(): 3}


def drawn(folder: Path) -> Path:
    noise = np.random.default_rng(1)
    for name, count in COUNTS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


async def test_a_class_of_few_images_is_in_nothing_that_members_get(tmp_path: Path) -> None:
    root, keys = drawn(tmp_path / "images"), keyed(tmp_path, "a", "b")
    both = (*SUMS, f"cache.folder={tmp_path / 'cache'}", "data.test=0")
    own = (f"data.path={root}", "page.listen=127.0.0.1:0")
    theirs = ("data.classes=[barrel, beaver]", "data.shots=5", "page.listen=null")
    start_a = running(tmp_path, "a", *both, *own)
    async with start_a as a, running(tmp_path, "b", *both, *theirs) as b:
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(a.until("life.finished"), b.until("life.finished"))
        site = Site(a, b, tmp_path, keys)
        for channel in MEMBERS:
            async with asyncio.timeout(GUARD_S):
                content = await CHANNELS[channel][0](site)
            assert len(content) > 30, channel
            assert found(content) == set(), channel
            assert channel not in SENT or b"lesion" in content, "the search finds what is sent"
        told = b.driver.kernel.policy.state().tensors
        assert set(told.classes) == {"barrel", "beaver", "cyst", "lesion"}
        assert told["rows/a"][:, 1].sum() == COUNTS["cyst"] + COUNTS["lesion"]
        few = "has fewer than 5 training images: its mean is not sent (privacy.least_images)."
        assert a.learner.unsent == f"1 of 3 classes ({CLASS.decode()}) {few}"
        async with site.client("a") as client:  # its operator knows the class
            assert CLASS in await ASKED["status"](client, site.at)
