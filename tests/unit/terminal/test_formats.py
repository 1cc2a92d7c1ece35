"""The option --format, and protobuf messages as JSON types."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from fednode.terminal.formats import format_option, plain, table_format_option
from fednode.wire.gen import status_pb2


@pytest.mark.parametrize(("words", "wanted"), [([], "False"), (["--format", "json"], "True")])
def test_a_command_is_told_whether_json_was_asked_for(words: list[str], wanted: str) -> None:
    @click.command()
    @format_option
    def run(as_json: bool) -> None:
        click.echo(str(as_json))

    assert CliRunner().invoke(run, words).output.strip() == wanted
    assert CliRunner().invoke(run, ["--format", "csv"]).exit_code == 2


def test_a_table_may_be_csv_too() -> None:
    @click.command()
    @table_format_option
    def run(form: str) -> None:
        click.echo(form)

    for form in ("text", "json", "csv"):
        assert CliRunner().invoke(run, ["--format", form]).output.strip() == form
    assert CliRunner().invoke(run, []).output.strip() == "text"


def test_a_message_has_all_its_fields_and_counts_are_numbers() -> None:
    reply = status_pb2.StatusReply(
        name="a",
        refused={"norm": 2},
        metrics={"loss": 0.5},
        traffic=status_pb2.Traffic(payload_out=2**40),
    )
    reply.peers.add(name="b", round=3)
    tree = plain(reply)
    assert tree["traffic"]["payload_out"] == 2**40
    assert tree["refused"] == {"norm": 2}
    assert tree["metrics"] == {"loss": 0.5}
    assert tree["peers"][0]["round"] == 3
    assert tree["mesh"] == ""  # not set, and there
    assert json.loads(json.dumps(tree)) == tree
