"""What is fuzzed: each target takes any bytes and raises only where a decoder is wrong."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fednode.errors import AddressError, ConfigError, FrameError, IdentityError
from fednode.identity import certificates
from fednode.identity.keys import read_group
from fednode.identity.roster import Roster
from fednode.lab.commands.simulate import load as load_scenario
from fednode.lab.experiment.files import load_experiment
from fednode.settings.peers import load_peers
from fednode.settings.read import load_settings
from fednode.transports.address import parse
from fednode.wire.codec import decode, decode_ack, encode, encode_ack
from fednode.wire.tensors import pack, unpack
from tests.unit.wire.samples import built, changed, message, split

MESH_KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
PUBLIC: Final = MESH_KEY.public_key()
CORPUS: Final = Path(__file__).parent / "corpus"
Target = Callable[[bytes], None]


FRAME: Final = encode(message(), "float32")
HEAD: Final = split(FRAME)[0]


def _frame(data: bytes) -> None:
    """Decode bytes as they are, as a head, as a head and arrays, as arrays, and as metadata.

    What makes the checks before the head come out right lets the bytes further in.
    """
    size = int.from_bytes(data[:2], "big")
    both = built(data[2 : 2 + size], data[2 + size :])
    inside = (built(data), both, built(HEAD, data), changed(FRAME, metadata=data))
    for frame in (data, *inside):
        try:
            got = decode(frame)
        except FrameError:
            continue
        assert decode(encode(got, "float32")) == got, "a message changes when it is sent on"


def _arrays(data: bytes) -> None:
    """Read a safetensors file; and one whose header has the length that the first two bytes say."""
    size = int.from_bytes(data[:2], "big")
    for file in (data, size.to_bytes(8, "little") + data[2:]):
        try:
            tensors, _ = unpack(file)
        except FrameError:
            continue
        again = unpack(b"".join(pack(tensors, "float32")))[0]
        assert again == tensors, "arrays change when they are sent on"


def _ack(data: bytes) -> None:
    try:
        code, detail, later = decode_ack(data)
    except FrameError:
        return
    again = decode_ack(encode_ack(code, detail, later))
    assert (again.code, again.later) == (code, later), "a verdict changes when it is sent on"


def _revocation(data: bytes) -> None:
    """Read a statement behind the right signature."""
    with contextlib.suppress(IdentityError):
        said = certificates.read_revocation(
            MESH_KEY.sign(certificates._PURPOSE + data) + data, PUBLIC
        )
        assert all(isinstance(one, str) for one in (said.mesh, said.name, said.id))


def _certificate(data: bytes) -> None:
    """Read a certificate, a chain that gossip carries, and an invitation that a relay is told."""
    roster, texts = Roster("m", PUBLIC), [data]
    for packed in (data, msgpack.packb([data, data])):
        with contextlib.suppress(IdentityError):
            chain = certificates.Chain.unpack(packed)
            assert certificates.Chain.unpack(chain.pack()) == chain, "a chain changes when packed"
            texts.append(chain.pem)
    for text in texts:
        assert roster.identify(text) is None, "somebody is a member without the mesh key"
        roster.set_invitations({text: "x"}, by="b")


def _words(data: bytes) -> None:
    """Read addresses and ids."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(AddressError):
        assert parse(str(parse(text))) == parse(text), "an address changes when it is written"
    with contextlib.suppress(IdentityError):
        read_group(text)


def _file(load: Callable[[Path], Any]) -> Target:
    def read(data: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
            file.write(data)
            file.flush()
            said = f"{file.name}."
            try:
                load(Path(file.name))
            except ConfigError as fault:
                said = str(fault)
            assert file.name in said, "a sentence that does not name its file"
            assert said[-1] in ".:)?", "a sentence without its end"

    return read


TARGETS: Final[Mapping[str, Target]] = {
    "frame": _frame,
    "arrays": _arrays,
    "ack": _ack,
    "revocation": _revocation,
    "certificate": _certificate,
    "words": _words,
    "settings": _file(lambda path: load_settings(path, {})),
    "peers": _file(load_peers),
    "scenario": _file(load_scenario),
    "experiment": _file(load_experiment),
}
