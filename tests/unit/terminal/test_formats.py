"""The option --format."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fednode.terminal.formats import format_option, table_format_option


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
