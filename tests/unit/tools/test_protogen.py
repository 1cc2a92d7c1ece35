"""Generated code: repeatable, importable where it lies, and compared byte for byte."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from fednode.wire.gen import exchange_pb2, status_pb2_grpc
from tools import generated, protogen

PROTO = """
syntax = "proto3";
package trial.v1;
service Trial {
  rpc Ask(Note) returns (Note);
  rpc Collect(stream Note) returns (Note);
  rpc Follow(Note) returns (stream Note);
}
message Note { string text = 1; }
"""


def test_the_same_proto_gives_the_same_bytes_which_are_the_committed_ones() -> None:
    once = protogen.generate()
    assert once == protogen.generate()
    assert protogen.main(["--check"]) == 0
    assert {"__init__.py", "exchange_pb2.py", "status_pb2_grpc.py", "status_pb2.pyi"} <= set(once)


def test_generated_modules_import_each_other_in_their_package() -> None:
    assert exchange_pb2.Envelope.__module__ == "fednode.wire.gen.exchange_pb2"
    assert status_pb2_grpc.NodeStub.__module__ == "fednode.wire.gen.status_pb2_grpc"
    assert exchange_pb2.DESCRIPTOR.package == "fednode.v1"


def test_writing_leaves_exactly_what_was_generated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {tmp_path / name: name.encode() for name in ("a.py", "new/b.py")}
    (tmp_path / "c.py").touch()

    def run(*words: str) -> int:
        return generated.main("", words, lambda: made, lambda: tmp_path.glob("*.py"), "stale")

    assert run("--check") == 1
    assert re.search(r"/a\.py, .*/c\.py, .*/new/b\.py: stale\n", capsys.readouterr().err)
    assert run() == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.py")} == made
    assert run("--check") == 0


def test_check_names_what_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "gen"
    assert protogen.main([], folder) == 0
    assert protogen.main(["--check"], folder) == 0
    assert capsys.readouterr().err == ""
    with (folder / "status_pb2.py").open("ab") as file:
        file.write(b"\n")
    (folder / "old_pb2.py").write_bytes(b"")
    assert protogen.main(["--check"], folder) == 1
    said = capsys.readouterr().err
    assert re.search(
        r"old_pb2\.py, .*/status_pb2\.py: not what proto/ says, .* run `make proto`", said
    )
    assert said.count("\n") == 1


def test_a_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    assert protogen.main(["--check"]) == 1
    assert "grpcio-tools is not installed" in capsys.readouterr().err


def test_a_folder_without_contract_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no \.proto file in"):
        protogen.generate(tmp_path)


def test_a_contract_that_does_not_compile_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trial.proto").write_text("message Broken {")
    with pytest.raises(RuntimeError, match="protoc refuses a file"):
        protogen.generate(tmp_path)
    assert "trial.proto" in capfd.readouterr().err


async def test_services_have_typed_clients_and_servers_that_understand_each_other(
    tmp_path: Path,
) -> None:
    (tmp_path / "trial.proto").write_text(PROTO)
    (tmp_path / "plain.proto").write_text('syntax = "proto3"; package trial.v1; message Alone {}')
    files = protogen.generate(tmp_path)
    assert "plain_pb2_grpc.py" not in files
    text = files["trial_pb2_grpc.py"].decode()
    note = "trial_pb2.Note"
    assert f"async def Ask(self, request: {note}, context: Any) -> {note}:" in text
    assert f"request_iterator: AsyncIterator[{note}], context: Any) -> {note}:" in text
    assert f"    def Follow(self, request: {note}, context: Any) -> AsyncIterator[{note}]" in text
    assert "def add_TrialServicer_to_server(servicer: TrialServicer, server: Any)" in text

    made: dict[str, Any] = {}
    # The module imports its messages; those of another file stand in for them.
    text = text.replace("import trial_pb2", "import exchange_pb2").replace(note, "Frame")
    exec(text.replace("\n\nclass", "\nFrame = exchange_pb2.Frame\n\nclass", 1), made)

    base: Any = made["TrialServicer"]

    class Servicer(base):  # type: ignore[misc]
        async def Ask(self, request: Any, context: Any) -> Any:
            return request

        async def Collect(self, request_iterator: Any, context: Any) -> Any:
            frames = [one.data async for one in request_iterator]
            return exchange_pb2.Frame(data=b"".join(frames))

        async def Follow(self, request: Any, context: Any) -> Any:
            for part in request.data:
                yield exchange_pb2.Frame(data=bytes([part]))

    server, bare = grpc.aio.server(), grpc.aio.server()
    made["add_TrialServicer_to_server"](Servicer(), server)
    made["add_TrialServicer_to_server"](base(), bare)
    ports = [one.add_insecure_port("127.0.0.1:0") for one in (server, bare)]
    for one in (server, bare):
        await one.start()
    frame = exchange_pb2.Frame(data=b"ab")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        stub = made["TrialStub"](channel)
        assert await stub.Ask(frame) == frame
        assert (await stub.Collect(iter([frame, frame]))).data == b"abab"
        assert [one.data async for one in stub.Follow(frame)] == [b"a", b"b"]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await made["TrialStub"](channel).Ask(frame)
        assert fault.value.code() == grpc.StatusCode.UNIMPLEMENTED
    for one in (server, bare):
        await one.stop(None)
