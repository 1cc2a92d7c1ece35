"""The control exchanges nothing, and otherwise does what its rivals do."""

from __future__ import annotations

from fednode.core.events import PeerUp, Received, RoundDue, Tune
from fednode.core.settings import RoundSettings
from fednode.core.types import Message
from fednode.policies.local import Local, LocalConfig
from fednode.policies.zerodfl import ZeroDFL, ZeroDFLConfig
from fednode.testing import frame
from tests.unit.policies.scenes import OWN

CONTEXT = frame("local", peers=("b",), rounds=RoundSettings(mode="async", max=3))


def test_its_first_job_is_zerodfl_s_to_the_letter() -> None:
    """The same start, seed and schedule: only the exchange can make a difference."""
    jobs = []
    for policy in (
        Local.start(LocalConfig(), CONTEXT, OWN),
        ZeroDFL.start(ZeroDFLConfig(), CONTEXT, OWN),
    ):
        (tune,) = policy.handle(0.0, RoundDue(1))
        assert isinstance(tune, Tune)
        jobs.append(tune.job)
    assert jobs[0] == jobs[1]


def test_it_takes_no_notice_of_peers_and_refuses_their_messages() -> None:
    policy = Local.start(LocalConfig(), CONTEXT, OWN)
    message = Message(
        mesh="m", fingerprint="f", policy="local", sender="b", round=1, phase="prompts", tensors=OWN
    )
    assert "exchanges nothing" in policy.fault(message)
    before = policy.state()
    assert policy.handle(0.0, PeerUp("b")) == []
    assert policy.handle(0.0, Received(message)) == []
    assert policy.state() == before
