"""The help of a command with subcommands."""

from __future__ import annotations

import click
import pytest

from fednode.cli import main
from fednode.terminal.groups import Whole
from tests.command_line import named


@pytest.mark.parametrize("name", ["explain"])
def test_the_help_of_a_group_cuts_no_sentence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = named(name)
    assert isinstance(group, Whole)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    listed = " ".join(capsys.readouterr().out.partition("Commands:")[2].split())
    assert "..." not in listed
    for one in group.commands.values():
        assert isinstance(one, click.Command)
        first = one.get_short_help_str(10_000)
        assert first in listed
